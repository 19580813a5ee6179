"""Train a small transformer encoder on (generated) customer reviews.

Every review is a list of token ids; the label is one of five topics and depends on which key words occur and on
whether a negation stands directly before them.
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

PAD, UNK, NOT = 0, 1, 2
VOCAB, CLASSES = 64, 5
CFG = dict(
    dim=40,
    heads=4,
    layers=2,
    dropout=0.1,
    word_dropout=0.1,
    batch_size=32,
    accumulate=2,
    epochs=7,
    lr=3e-3,
    weight_decay=0.1,
    warmup=30,
    smoothing=0.1,
    max_norm=0.3,
)


class Reviews(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.items = []
        for _ in range(n):
            length = int(torch.randint(6, 27, (1,), generator=g))
            tokens = torch.randint(13, VOCAB, (length,), generator=g)
            score = torch.zeros(CLASSES)
            for _ in range(int(torch.randint(2, 5, (1,), generator=g))):
                at = int(torch.randint(1, length, (1,), generator=g))
                word = int(torch.randint(3, 13, (1,), generator=g))
                tokens[at] = word
                if torch.rand(1, generator=g) < 0.35:
                    tokens[at - 1] = NOT
            for before, word in zip([PAD] + tokens.tolist(), tokens.tolist()):
                if 3 <= word < 13:
                    score[(word - 3) // 2] += -1.0 if before == NOT else 1.0 + 0.1 * (word % 2)
            label = int((score + 0.01 * torch.arange(CLASSES)).argmax())
            if torch.rand(1, generator=g) < 0.05:
                label = int(torch.randint(0, CLASSES, (1,), generator=g))
            self.items.append((tokens, label))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(items):
    tokens = nn.utils.rnn.pad_sequence([t for t, _ in items], batch_first=True, padding_value=PAD)
    labels = torch.tensor([label for _, label in items])
    return tokens, labels


class SelfAttention(nn.Module):
    def __init__(self, dim, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x, pad):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(d // self.heads)
        scores = scores.masked_fill(pad[:, None, None, :], float("-inf"))
        weights = F.dropout(scores.softmax(-1), self.dropout, self.training)
        return self.out((weights @ v).transpose(1, 2).reshape(b, t, d))


class Block(nn.Module):
    def __init__(self, dim, heads, dropout):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = SelfAttention(dim, heads, dropout)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Dropout(dropout), nn.Linear(2 * dim, dim))
        self.drop = nn.Dropout(dropout)

    def forward(self, x, pad):
        x = x + self.drop(self.attention(self.norm1(x), pad))
        return x + self.drop(self.mlp(self.norm2(x)))


class Classifier(nn.Module):
    def __init__(self, dim, heads, layers, dropout, word_dropout):
        super().__init__()
        self.word_dropout = word_dropout
        self.embed = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.position = nn.Parameter(0.1 * torch.randn(32, dim))
        self.blocks = nn.ModuleList([Block(dim, heads, dropout) for _ in range(layers)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, CLASSES)

    def forward(self, tokens):
        pad = tokens == PAD
        if self.training:
            lost = torch.rand(tokens.shape) < self.word_dropout
            tokens = tokens.masked_fill(lost & ~pad, UNK)
        x = self.embed(tokens) + self.position[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x, pad)
        x = self.norm(x).masked_fill(pad.unsqueeze(-1), 0.0)
        x = x.sum(1) / (~pad).sum(1, keepdim=True)
        return self.head(x)


def make_optimizer(model):
    decay = [p for p in model.parameters() if p.ndim >= 2]
    no_decay = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": decay, "weight_decay": CFG["weight_decay"]}, {"params": no_decay, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=CFG["lr"])


def train_epoch(model, loader, criterion, optimizer, scheduler):
    model.train()
    running, seen = 0.0, 0
    optimizer.zero_grad()
    for i, (tokens, labels) in enumerate(loader):
        loss = criterion(model(tokens), labels)
        (loss / CFG["accumulate"]).backward()
        if (i + 1) % CFG["accumulate"] == 0 or i + 1 == len(loader):
            nn.utils.clip_grad_norm_(model.parameters(), CFG["max_norm"])
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        running += loss.item() * len(labels)
        seen += len(labels)
    return running / seen


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    loss, right, seen = 0.0, 0, 0
    for tokens, labels in loader:
        logits = model(tokens)
        loss += F.cross_entropy(logits, labels, reduction="sum").item()
        right += (logits.argmax(1) == labels).sum().item()
        seen += len(labels)
    return loss / seen, right / seen


def main():
    torch.manual_seed(11)
    train, valid = Reviews(1362, seed=1), Reviews(500, seed=2)
    train_loader = DataLoader(train, batch_size=CFG["batch_size"], shuffle=True, collate_fn=collate)
    valid_loader = DataLoader(valid, batch_size=100, collate_fn=collate)
    model = Classifier(CFG["dim"], CFG["heads"], CFG["layers"], CFG["dropout"], CFG["word_dropout"])
    criterion = nn.CrossEntropyLoss(label_smoothing=CFG["smoothing"])
    optimizer = make_optimizer(model)
    total = CFG["epochs"] * math.ceil(len(train_loader) / CFG["accumulate"])

    def rate(step):
        if step < CFG["warmup"]:
            return (step + 1) / CFG["warmup"]
        return 0.5 * (1 + math.cos(math.pi * (step - CFG["warmup"]) / (total - CFG["warmup"])))

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    best = 0.0
    for epoch in range(CFG["epochs"]):
        train_loss = train_epoch(model, train_loader, criterion, optimizer, scheduler)
        valid_loss, accuracy = evaluate(model, valid_loader)
        print(f"epoch {epoch + 1:2d} train loss {train_loss:.5f} valid loss {valid_loss:.5f} accuracy {accuracy:.4f}", flush=True)
        if accuracy > best:
            best = accuracy
            torch.save({"model": model.state_dict(), "epoch": epoch, "accuracy": accuracy}, "reviews.pt")
    print(f"best accuracy {best:.4f}")


if __name__ == "__main__":
    main()
