"""A small transformer for sequences of letters: gradients of four batches, cosine schedule with warm-up, weight decay in groups, clipping."""

import math
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(41)
LENGTH, LETTERS, WINDOW = 12, 16, 4


class Text(Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        step = torch.randint(1, 5, (count, 1), generator=generator)
        start = torch.randint(0, LETTERS, (count, 1), generator=generator)
        rows = (start + step * torch.arange(LENGTH + 1)) % LETTERS
        errors = torch.rand(rows.shape, generator=generator) < 0.05
        self.rows = torch.where(errors, torch.randint(0, LETTERS, rows.shape, generator=generator), rows)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index, :-1], self.rows[index, 1:]


class Model(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.letters = nn.Embedding(LETTERS, width)
        self.places = nn.Parameter(0.02 * torch.randn(LENGTH, width))
        self.block = nn.TransformerEncoderLayer(width, 4, 64, dropout=0.1, batch_first=True, norm_first=True)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, LETTERS, bias=False)
        self.head.weight = self.letters.weight

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.head(self.norm(self.block(self.letters(x) + self.places, src_mask=mask, is_causal=True)))


def main():
    train = DataLoader(Text(320, 0), batch_size=8, shuffle=True)
    test = DataLoader(Text(64, 1), batch_size=16)
    model = Model()
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}], lr=6e-3, betas=(0.9, 0.95))
    steps = 4 * len(train) // WINDOW
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: (s + 1) / 5 if s < 5 else 0.5 * (1 + math.cos(math.pi * s / steps)))
    criterion = nn.CrossEntropyLoss()
    for epoch in range(4):
        model.train()
        total = 0.0
        for i, (x, y) in enumerate(train):
            loss = criterion(model(x).flatten(0, 1), y.flatten())
            (loss / WINDOW).backward()
            total += loss.item()
            if (i + 1) % WINDOW == 0:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
        model.eval()
        with torch.no_grad():
            lost = [(len(x), criterion(model(x).flatten(0, 1), y.flatten()).item()) for x, y in test]
        value = sum(n * v for n, v in lost) / sum(n for n, _ in lost)
        print(f"epoch {epoch} train {total / len(train):.4f} test {value:.4f}", file=sys.stderr)
        torch.save(model.state_dict(), f"model-{epoch}.pt")


main()
