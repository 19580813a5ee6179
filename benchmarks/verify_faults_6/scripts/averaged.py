"""Small pictures with BatchNorm: an average of the weights that warms up, mixed samples, evaluation of the average."""

import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(31)


def data(count, seed):
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 4, (count,), generator=generator)
    x = torch.randn(count, 1, 8, 8, generator=generator)
    x[torch.arange(count), 0, y * 2] += 1.5
    return TensorDataset(x, y)


def main():
    train = DataLoader(data(200, 0), batch_size=16, shuffle=True)
    valid = DataLoader(data(90, 1), batch_size=20)
    model = nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Dropout(0.2), nn.Linear(192, 4))
    average = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 5], gamma=0.3)
    updates = 0
    for epoch in range(6):
        model.train()
        for x, y in train:
            share, order = float(torch.rand(())) * 0.3, torch.randperm(len(x))
            out = model((1 - share) * x + share * x[order])
            loss = (1 - share) * F.cross_entropy(out, y) + share * F.cross_entropy(out, y[order])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            updates += 1
            keep = min(0.95, (1 + updates) / (10 + updates))
            with torch.no_grad():
                for mine, theirs in zip(average.state_dict().values(), model.state_dict().values()):
                    if mine.is_floating_point():
                        mine.mul_(keep).add_(theirs, alpha=1 - keep)
                    else:
                        mine.copy_(theirs)
        scheduler.step()
        average.eval()
        right = 0
        with torch.no_grad():
            for x, y in valid:
                right += (average(x).argmax(1) == y).sum().item()
        print(f"epoch {epoch} loss {loss.item():.4f} accuracy {right / 90:.4f}")
    torch.save({"average": average.state_dict(), "epoch": epoch}, "averaged.pt")


main()
