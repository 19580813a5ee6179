"""A table in memory: a new permutation in every epoch, noise on the columns, a schedule of steps, a CSV file of the losses."""

import csv

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(11)


def table(count, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 10, generator=generator)
    y = x[:, 0] * x[:, 1] + torch.sin(2 * x[:, 2]) + 0.3 * torch.randn(count, generator=generator)
    order = torch.argsort(x[:, 0])
    return x[order], y[order, None]


def main():
    x, y = table(320, 0)
    test_x, test_y = table(100, 1)
    mean, std = x.mean(0), x.std(0)
    x, test_x = (x - mean) / std, (test_x - mean) / std
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.01)
    epochs, size = 6, 32
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(x) // size)
    with open("log.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["epoch", "train", "test"])
        for epoch in range(epochs):
            model.train()
            order = torch.randperm(len(x))
            total = 0.0
            for start in range(0, len(x), size):
                rows = order[start : start + size]
                batch = x[rows] + 0.05 * torch.randn(len(rows), 10)
                loss = F.smooth_l1_loss(model(batch), y[rows])
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                scheduler.step()
                total += loss.item() * len(rows)
            model.eval()
            with torch.no_grad():
                error = F.mse_loss(model(test_x), test_y).item()
            writer.writerow([epoch, f"{total / len(x):.5f}", f"{error:.5f}"])
    torch.save({"model": model.state_dict(), "mean": mean, "std": std}, "rows.pt")
    print("done")


main()
