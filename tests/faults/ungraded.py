"""A net with dropout that is evaluated with gradients."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(5)


def data(count):
    x = torch.randn(count, 8)
    return TensorDataset(x, (x.sum(1) > 0).long())


def accuracy(model, test):
    model.eval()
    total = 0
    for x, y in test:
        total += (model(x).argmax(1) == y).sum().item()
    model.train()
    return total / len(test.dataset)


def main():
    train, test = (
        DataLoader(data(128), batch_size=16, shuffle=True),
        DataLoader(data(40), batch_size=16),
    )
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(4):
        for x, y in train:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: accuracy {accuracy(model, test):.3f}")


main()
