"""A small encoder that learns to fill in words that were masked, as BERT does."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader

PAD, MASK, SPECIAL, WORDS = 0, 1, 2, 50
DIM, HEADS, LAYERS, LONGEST = 32, 4, 2, 22
BATCH, EPOCHS, LR = 24, 7, 4e-3
CHOSEN, AS_MASK, AS_OTHER = 0.15, 0.8, 0.1
IGNORED = -100


def hymns(count, seed):
    """Lines of 8 to 22 words, each of which comes often after the one before and the one before that."""
    world = torch.Generator().manual_seed(77)
    after = torch.randint(SPECIAL, WORDS, (WORDS, 3), generator=world)
    g = torch.Generator().manual_seed(seed)
    lines = []
    for _ in range(count):
        length = int(torch.randint(8, LONGEST + 1, (1,), generator=g))
        line = [int(torch.randint(SPECIAL, WORDS, (1,), generator=g))]
        while len(line) < length:
            if torch.rand(1, generator=g) < 0.06:
                line.append(int(torch.randint(SPECIAL, WORDS, (1,), generator=g)))
            else:
                line.append(int(after[line[-1], int(torch.randint(0, 3, (1,), generator=g)) * (len(line) % 2)]))
        lines.append(torch.tensor(line))
    return lines


def hide(words, generator=None):
    """Words with some hidden, and what is to be found there."""
    labels = words.clone()
    chosen = (torch.rand(words.shape, generator=generator) < CHOSEN) & (words != PAD)
    labels[~chosen] = IGNORED
    masked = chosen & (torch.rand(words.shape, generator=generator) < AS_MASK)
    other = chosen & ~masked & (torch.rand(words.shape, generator=generator) < AS_OTHER / (1 - AS_MASK))
    words = words.clone()
    words[masked] = MASK
    some = torch.randint(SPECIAL, WORDS, words.shape, generator=generator)
    words[other] = some[other]
    return words, labels


def collate(lines):
    return hide(nn.utils.rnn.pad_sequence(lines, batch_first=True, padding_value=PAD))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, DIM, padding_idx=PAD)
        self.places = nn.Embedding(LONGEST, DIM)
        self.norm, self.drop = nn.LayerNorm(DIM), nn.Dropout(0.1)
        layer = nn.TransformerEncoderLayer(DIM, HEADS, 2 * DIM, dropout=0.1, activation="gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.transform = nn.Sequential(nn.Linear(DIM, DIM), nn.GELU(), nn.LayerNorm(DIM))
        self.bias = nn.Parameter(torch.zeros(WORDS))
        nn.init.normal_(self.words.weight, std=0.1)
        nn.init.normal_(self.places.weight, std=0.1)

    def forward(self, words):
        h = self.words(words) + self.places(torch.arange(words.shape[1]))
        h = self.drop(self.norm(h))
        h = self.layers(h, src_key_padding_mask=words == PAD)
        return F.linear(self.transform(h), self.words.weight, self.bias)


def groups(model):
    """Weights that decay, and those that do not."""
    decayed = [p for name, p in model.named_parameters() if p.dim() > 1 and "places" not in name]
    rest = [p for name, p in model.named_parameters() if p.dim() <= 1 or "places" in name]
    return [{"params": decayed, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]


@torch.no_grad()
def evaluate(model, batches):
    model.eval()
    loss, right, count = 0.0, 0, 0
    for words, labels in batches:
        logits = model(words)
        loss += F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum").item()
        known = labels != IGNORED
        right += ((logits.argmax(-1) == labels) & known).sum().item()
        count += known.sum().item()
    return loss / count, right / count


def main():
    torch.set_num_threads(1)
    torch.manual_seed(8)
    train_loader = DataLoader(hymns(1000, 1), BATCH, shuffle=True, collate_fn=collate)
    g = torch.Generator().manual_seed(9)
    held = hymns(240, 2)
    val = [hide(nn.utils.rnn.pad_sequence(held[i : i + 48], batch_first=True), g) for i in range(0, 240, 48)]
    model = Encoder()
    optimizer = torch.optim.AdamW(groups(model), lr=LR, betas=(0.9, 0.98))
    steps = EPOCHS * len(train_loader)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: min((i + 1) / 40, 1 - i / steps))
    for epoch in range(EPOCHS):
        model.train()
        total, seen = 0.0, 0
        for words, labels in train_loader:
            logits = model(words)
            loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            total += loss.item() * len(words)
            seen += len(words)
        val_loss, accuracy = evaluate(model, val)
        print(f"epoch {epoch} train {total / seen:.4f} val {val_loss:.4f} filled in {accuracy:.4f}")
    torch.save({"model": model.state_dict()}, "hymns.pt")


if __name__ == "__main__":
    main()
