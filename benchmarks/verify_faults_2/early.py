"""A classifier with a moving average of its weights, mixup, early stopping on the average's loss, best.pt, and a history in JSON."""

import copy
import json

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(29)


def data(count, seed):
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 5, (count,), generator=generator)
    centres = torch.randn(5, 16, generator=torch.Generator().manual_seed(4))
    return TensorDataset(centres[y] + 1.2 * torch.randn(count, 16, generator=generator), y)


class Average:
    def __init__(self, model, decay=0.9):
        self.model, self.decay = copy.deepcopy(model).eval(), decay

    @torch.no_grad()
    def update(self, model):
        for mine, theirs in zip(self.model.state_dict().values(), model.state_dict().values()):
            if mine.dtype.is_floating_point:
                mine.mul_(self.decay).add_(theirs, alpha=1 - self.decay)
            else:
                mine.copy_(theirs)


def evaluate(model, loader):
    total, right, count = 0.0, 0, 0
    model.eval()
    with torch.no_grad():
        for x, y in loader:
            out = model(x)
            total += F.cross_entropy(out, y, reduction="sum").item()
            right += (out.argmax(1) == y).sum().item()
            count += len(x)
    return total / count, right / count


def main():
    train = DataLoader(data(200, 0), batch_size=20, shuffle=True)
    valid = DataLoader(data(90, 1), batch_size=32)
    model = nn.Sequential(nn.Linear(16, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Dropout(0.3), nn.Linear(48, 5))
    average = Average(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-2)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
    best, waited, history = float("inf"), 0, []
    for epoch in range(10):
        model.train()
        total = 0.0
        for x, y in train:
            part = torch.distributions.Beta(0.4, 0.4).sample()
            other = torch.randperm(len(x))
            out = model(part * x + (1 - part) * x[other])
            loss = part * F.cross_entropy(out, y) + (1 - part) * F.cross_entropy(out, y[other])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            average.update(model)
            total += loss.item() * len(x)
        value, accuracy = evaluate(average.model, valid)
        scheduler.step(value)
        history.append({"epoch": epoch, "train": round(total / 200, 4), "valid": round(value, 4), "accuracy": accuracy})
        if value < best:
            best, waited = value, 0
            torch.save({"model": average.model.state_dict(), "epoch": epoch, "valid": value}, "best.pt")
        else:
            waited += 1
            if waited >= 3:
                break
    with open("history.json", "w") as file:
        json.dump(history, file)
    print(f"stopped after {len(history)} epochs, best {best:.4f}")


main()
