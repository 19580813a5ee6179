"""As train.py, tuned by hand: the table on the device, compiled, nothing read in a step."""

import argparse

import torch
from torch import nn


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


def accuracy(model, x, y, size):
    model.eval()
    correct = 0
    with torch.no_grad():
        for rows, labels in zip(x.split(size), y.split(size)):
            correct += (model(rows).argmax(dim=1) == labels).sum()
    return correct.item() / len(y)


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
    data, target = x.to(device), y.to(device)
    x_test, y_test = x_test.to(device), y_test.to(device)
    torch.set_float32_matmul_precision("high")
    model = MLP(64, width).to(device)
    compiled = model
    if device.type == "cuda":
        compiled = torch.compile(model, mode="reduce-overhead")
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    for epoch in range(args.epochs):
        model.train()
        running_loss = 0.0
        order = torch.randperm(args.rows, device=device).split(args.batch_size)
        for rows in order:
            x, y = data[rows], target[rows]
            optimizer.zero_grad()
            loss = criterion(compiled(x), y)
            loss.backward()
            optimizer.step()
            running_loss += loss.detach()
        test = accuracy(compiled, x_test, y_test, args.batch_size)
        print(f"epoch {epoch}: loss {running_loss / len(order):.4f}, accuracy {test:.4f}")


if __name__ == "__main__":
    main()
