"""Prices of second-hand boats from a table: columns of numbers with gaps, columns of kinds, several loader workers that blur the numbers, quantile loss, plateau schedule, best weights by validation."""
import copy

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

NUMBERS, CARDS = 6, (8, 5, 12)
QUANTILES = (0.1, 0.5, 0.9)
EPOCHS, BATCH, WORKERS = 9, 64, 2


def make_boats(n, seed):
    rng = np.random.default_rng(seed)
    numbers = rng.normal(size=(n, NUMBERS)).astype(np.float32) * np.float32([1, 10, 3, 0.1, 5, 100]) + np.float32([0, 20, 5, 1, 0, 900])
    kinds = np.stack([rng.integers(0, c, n) for c in CARDS], 1)
    worth = np.random.default_rng(50).normal(size=(len(CARDS), max(CARDS)))
    z = (numbers - [0, 20, 5, 1, 0, 900]) / [1, 10, 3, 0.1, 5, 100]
    price = 1.2 * z[:, 0] + np.sin(2 * z[:, 1]) + 0.5 * z[:, 2] * z[:, 3] + sum(worth[k][kinds[:, k]] for k in range(len(CARDS)))
    price = np.exp(0.4 * (price + (0.3 + 0.4 * (z[:, 4] > 0)) * rng.normal(size=n)) + 3)
    numbers[rng.random(numbers.shape) < 0.08] = np.nan
    return torch.from_numpy(numbers), torch.from_numpy(kinds), torch.from_numpy(price).float()


class Boats(Dataset):
    """Numbers scaled by the training rows, gaps set to nought and told by a flag; prices as scaled logarithms."""

    def __init__(self, table, scale, blur=0.0):
        (self.mean, self.std, self.shift, self.width), self.blur = scale, blur
        self.numbers, self.kinds, self.price = table

    def __len__(self):
        return len(self.price)

    def __getitem__(self, i):
        x = (self.numbers[i] - self.mean) / self.std
        gap = x.isnan()
        x = x.nan_to_num(0.0)
        if self.blur:
            x = x + self.blur * torch.randn(NUMBERS)
        return torch.cat([x, gap.to(x.dtype)]), self.kinds[i], (self.price[i].log() - self.shift) / self.width


class Table(nn.Module):
    def __init__(self, width=64, p=0.1):
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(c, 4) for c in CARDS])
        self.first = nn.Linear(2 * NUMBERS + 4 * len(CARDS), width, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm1d(width), nn.BatchNorm1d(width)
        self.second, self.drop = nn.Linear(width, width, bias=False), nn.Dropout(p)
        self.out = nn.Linear(width, len(QUANTILES))

    def forward(self, x, kinds):
        x = torch.cat([x] + [t(kinds[:, k]) for k, t in enumerate(self.tables)], 1)
        h = torch.relu(self.norm1(self.first(x)))
        h = h + self.drop(torch.relu(self.norm2(self.second(h))))
        return self.out(h)


def pinball(guess, y):
    """By row: sum over the quantiles."""
    q = torch.tensor(QUANTILES)
    miss = y.unsqueeze(1) - guess
    return torch.maximum(q * miss, (q - 1) * miss).sum(1)


def evaluate(model, loader, shift, width):
    """Quantile loss, error of the median in money, share of the prices inside the outer quantiles."""
    model.eval()
    loss, error, inside, n = 0.0, 0.0, 0, 0
    with torch.no_grad():
        for x, kinds, y in loader:
            guess = model(x, kinds)
            loss += pinball(guess, y).sum().item()
            error += ((guess[:, 1] * width + shift).exp() - (y * width + shift).exp()).abs().sum().item()
            inside += ((guess[:, 0] <= y) & (y <= guess[:, 2])).sum().item()
            n += len(y)
    return loss / n, error / n, inside / n


def main():
    torch.manual_seed(31)
    table, valid, test = make_boats(1500, 0), make_boats(450, 1), make_boats(450, 2)
    mean = table[0].nanmean(0)
    std = (table[0] - mean).pow(2).nanmean(0).sqrt()
    shift, width = table[2].log().mean(), table[2].log().std()
    scale = (mean, std, shift, width)
    train_loader = DataLoader(Boats(table, scale, blur=0.1), BATCH, shuffle=True, num_workers=WORKERS, persistent_workers=True)
    valid_loader = DataLoader(Boats(valid, scale), BATCH)
    test_loader = DataLoader(Boats(test, scale), BATCH)
    model = Table()
    optimizer = torch.optim.AdamW([{"params": [p for t in model.tables for p in t.parameters()], "weight_decay": 0.3}, {"params": [p for n, p in model.named_parameters() if not n.startswith("tables")]}], lr=1e-2, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1, threshold=0.02)
    best, kept = float("inf"), None
    for epoch in range(EPOCHS):
        model.train()
        total, n = 0.0, 0
        for x, kinds, y in train_loader:
            loss = pinball(model(x, kinds), y).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item() * len(y)
            n += len(y)
        valid_loss, error, inside = evaluate(model, valid_loader, shift, width)
        scheduler.step(valid_loss)
        print(f"epoch {epoch + 1} train {total / n:.4f} valid {valid_loss:.4f} error {error:.4f} inside {inside:.4f} lr {optimizer.param_groups[0]['lr']:.6f}")
        if valid_loss < best:
            best, kept = valid_loss, copy.deepcopy(model.state_dict())
    torch.save({"model": kept, "last": model.state_dict(), "scale": scale}, "ledger.pt")
    model.load_state_dict(kept)
    loss, error, inside = evaluate(model, test_loader, shift, width)
    print(f"best {best:.4f} test {loss:.4f} error {error:.4f} inside {inside:.4f}")


if __name__ == "__main__":
    main()
