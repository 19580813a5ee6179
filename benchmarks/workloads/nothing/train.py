"""A fit in double precision, of batches that lie in memory: matrix products, and little else to be saved."""

import argparse

import torch
from torch import nn


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--tiny", action="store_true", help="a narrower network, fewer rows")
    args = parser.parse_args()
    rows = 8192
    if args.tiny:
        args.width, args.epochs, rows = 256, 4, 5120

    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    x = torch.randn(rows, 256)
    y = (x[:, :16].sum(dim=1) > 0).long()
    x_test, y_test = x[-1024:], y[-1024:]
    x, y = x[:-1024], y[:-1024]
    model = nn.Sequential(
        nn.Linear(256, args.width), nn.ReLU(), nn.Linear(args.width, args.width), nn.ReLU(),
        nn.Linear(args.width, 2),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(args.epochs):
        model.train()
        order = torch.randperm(len(x))
        for start in range(0, len(x), 512):
            rows = order[start : start + 512]
            loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            accuracy = (model(x_test).argmax(1) == y_test).float().mean().item()
        print(f"epoch {epoch}: loss {loss.item():.4f}, accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
