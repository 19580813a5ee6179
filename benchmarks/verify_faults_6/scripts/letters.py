"""A small language model: two batches for each step, clipping, decay for matrices alone, warm-up and cosine by step."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(17)


class Letters(Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        start = torch.randint(0, 20, (count, 1), generator=generator)
        pace = torch.randint(1, 4, (count, 1), generator=generator)
        self.ids = (start + pace * torch.arange(17)) % 20

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        return self.ids[index]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 24)
        self.norm = nn.LayerNorm(24)
        self.rnn = nn.GRU(24, 32, batch_first=True)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(32, 20)

    def forward(self, ids):
        return self.head(self.drop(self.rnn(self.norm(self.embed(ids)))[0]))


def main():
    train = DataLoader(Letters(192, 0), batch_size=16, shuffle=True)
    valid = DataLoader(Letters(72, 1), batch_size=16)
    model = Model()
    large = [p for p in model.parameters() if p.ndim >= 2]
    small = [p for p in model.parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW([{"params": large, "weight_decay": 0.1}, {"params": small, "weight_decay": 0.0}], lr=1e-2)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1.0, (n + 1) / 5) * 0.5 * (1 + math.cos(math.pi * n / 36)))
    for epoch in range(6):
        model.train()
        total = 0.0
        for number, ids in enumerate(train):
            loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
            (loss / 2).backward()
            total += loss.item()
            if number % 2:
                nn.utils.clip_grad_norm_(model.parameters(), 0.05)
                optimizer.step()
                optimizer.zero_grad()
                scheduler.step()
        model.eval()
        lost, count = 0.0, 0
        with torch.no_grad():
            for ids in valid:
                lost += F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten(), reduction="sum").item()
                count += ids[:, 1:].numel()
        print(f"epoch {epoch} train {total / len(train):.4f} valid {lost / count:.4f}")
    torch.save(model.state_dict(), "letters.pt")


main()
