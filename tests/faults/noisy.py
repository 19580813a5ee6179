"""A table in memory; the net adds noise to what it is given in training, and lets its layers out by
chance; a threshold is chosen on a grid at the end.
"""

import random

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint  # noqa: F401

random.seed(4)
torch.manual_seed(4)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(10, 32)
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(6))
        self.head = nn.Sequential(nn.Dropout(0.1), nn.Linear(32, 1))

    def forward(self, x):
        if self.training:
            x = x + 0.1 * torch.randn_like(x)
        h = F.relu(self.first(x))
        for layer in self.layers:
            if self.training and random.random() < 0.2:
                continue
            h = h + F.relu(layer(h))
        return self.head(h).squeeze(1)


def evaluate(model, x, y):
    model.eval()
    with torch.no_grad():
        logits = torch.cat([model(part) for part in x.split(32)])
    model.train()
    return F.binary_cross_entropy_with_logits(logits, y).item(), logits


def main():
    x = torch.randn(256, 10)
    y = (x[:, 0] * x[:, 1] + x[:, 2] + 0.4 * torch.randn(256) > 0).float()
    train_x, train_y, test_x, test_y = x[:160], y[:160], x[160:], y[160:]
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(14):
        total = 0.0
        for rows in torch.randperm(160).split(16):
            loss = F.binary_cross_entropy_with_logits(model(train_x[rows]), train_y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(
            f"epoch {epoch}: loss {total / 10:.4f} validation {evaluate(model, test_x, test_y)[0]:.4f}"
        )
    chance = torch.sigmoid(evaluate(model, test_x, test_y)[1])
    right = [
        ((chance > cut).float() == test_y).float().mean().item()
        for cut in (0.3, 0.4, 0.5, 0.6, 0.7)
    ]
    print(
        f"threshold {(0.3, 0.4, 0.5, 0.6, 0.7)[right.index(max(right))]:.1f}, recall {max(right):.3f}"
    )


main()
