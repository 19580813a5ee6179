"""A multi-layer perceptron on a table of a million rows."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class MLP(nn.Module):
    def __init__(self, columns, width):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(columns, width),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Linear(width, width),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Linear(width, 2),
        )

    def forward(self, x):
        return self.layers(x)


def table(number, columns):
    x = torch.randn(number, columns)
    score = torch.sin(x[:, 0]) + x[:, 1] * x[:, 2] + 0.3 * torch.randn(number)
    return x, (score > 0).long()


def accuracy(model, loader, device):
    model.eval()
    correct, total = 0, 0
    with torch.no_grad():
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            correct += (model(x).argmax(dim=1) == y).sum().item()
            total += y.size(0)
    return correct / total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--tiny", action="store_true", help="for a CPU, in seconds")
    args = parser.parse_args()
    width = 512
    if args.tiny:
        args.rows, args.batch_size, args.epochs, width = 1_024, 64, 2, 32

    torch.manual_seed(42)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    x, y = table(args.rows, 64)
    x_test, y_test = table(args.rows // 10, 64)
    train_loader = DataLoader(TensorDataset(x, y), batch_size=args.batch_size, shuffle=True)
    test_loader = DataLoader(TensorDataset(x_test, y_test), batch_size=args.batch_size)
    model = MLP(64, width).to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        model.train()
        running_loss = 0.0
        for x, y in train_loader:
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
        test = accuracy(model, test_loader, device)
        print(f"epoch {epoch}: loss {running_loss / len(train_loader):.4f}, accuracy {test:.4f}")


if __name__ == "__main__":
    main()
