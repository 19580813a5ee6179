"""Sequence labelling: packed sequences, a masked loss, two groups of parameters, warm-up by steps, clipping, the best checkpoint."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(41)
PAD, WORDS, TAGS, EPOCHS = 0, 30, 5, 6


class Sentences(Dataset):
    """A word's tag hangs on the word and on the one before."""

    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        lengths = torch.randint(3, 15, (count,), generator=generator).tolist()
        self.words = [torch.randint(1, WORDS, (length,), generator=generator) for length in lengths]
        self.tags = [(words + words.roll(1) % 2) % TAGS for words in self.words]

    def __len__(self):
        return len(self.words)

    def __getitem__(self, index):
        return self.words[index], self.tags[index]


def collate(items):
    words, tags = zip(*items)
    lengths = torch.tensor([len(row) for row in words])
    return pad_sequence(words, True, PAD), pad_sequence(tags, True, 0), lengths


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, 24, padding_idx=PAD)
        self.drop = nn.Dropout(0.2)
        self.body = nn.LSTM(24, 24, num_layers=2, batch_first=True, bidirectional=True, dropout=0.1)
        self.norm = nn.LayerNorm(48)
        self.head = nn.Linear(48, TAGS)

    def forward(self, words, lengths):
        packed = pack_padded_sequence(self.drop(self.embed(words)), lengths, batch_first=True, enforce_sorted=False)
        out, _ = pad_packed_sequence(self.body(packed)[0], batch_first=True)
        return self.head(self.drop(self.norm(out)))


def masked_loss(logits, tags, lengths):
    mask = torch.arange(tags.shape[1])[None] < lengths[:, None]
    each = F.cross_entropy(logits.flatten(0, 1), tags.flatten(), reduction="none").view_as(tags)
    return (each * mask).sum() / mask.sum()


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    right = count = total = 0
    for words, tags, lengths in loader:
        logits = model(words, lengths)
        mask = torch.arange(tags.shape[1])[None] < lengths[:, None]
        right += ((logits.argmax(-1) == tags) & mask).sum().item()
        total += masked_loss(logits, tags, lengths).item() * mask.sum().item()
        count += mask.sum().item()
    return total / count, right / count


def main():
    train = DataLoader(Sentences(150, 1), batch_size=16, shuffle=True, collate_fn=collate)
    valid = DataLoader(Sentences(60, 2), batch_size=20, collate_fn=collate)
    model = Tagger()
    decay = [p for name, p in model.named_parameters() if p.dim() > 1]
    plain = [p for name, p in model.named_parameters() if p.dim() <= 1]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0, "lr": 1e-2}]
    optimizer = torch.optim.AdamW(groups, lr=2e-2)
    steps = EPOCHS * len(train)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min((step + 1) / 10, (steps - step) / (steps - 9)))
    best = float("inf")
    for epoch in range(EPOCHS):
        model.train()
        shown = 0.0
        for words, tags, lengths in train:
            optimizer.zero_grad()
            loss = masked_loss(model(words, lengths), tags, lengths)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            scheduler.step()
            shown += loss.item()
        lost, right = evaluate(model, valid)
        print(f"epoch {epoch}: train {shown / len(train):.4f} valid {lost:.4f} right {right:.4f}")
        if lost < best:
            best = lost
            torch.save({"model": model.state_dict(), "epoch": epoch, "lost": lost}, "tagger.pt")


main()
