"""A regression on a table with many rows."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--tiny", action="store_true", help="a table with few rows")
    args = parser.parse_args()
    if args.tiny:
        args.rows, args.epochs = 12_800, 4

    torch.manual_seed(0)
    x = torch.randn(args.rows, 32)
    y = torch.sin(x[:, 0]) + 0.5 * x[:, 1] * x[:, 2] + 0.1 * torch.randn(args.rows)
    data = TensorDataset(x, y)
    train_set, test_set = random_split(data, [args.rows - args.rows // 8, args.rows // 8])
    train_loader = DataLoader(train_set, batch_size=128, shuffle=True)
    test_loader = DataLoader(test_set, batch_size=512)

    model = nn.Sequential(
        nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    criterion = nn.MSELoss()
    for epoch in range(args.epochs):
        model.train()
        total = 0.0
        for x, y in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(x).squeeze(1), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
        model.eval()
        test = 0.0
        for x, y in test_loader:
            test += criterion(model(x).squeeze(1), y).item()
        train_loss, test_loss = total / len(train_loader), test / len(test_loader)
        print(f"epoch {epoch}: train {train_loss:.4f}, test {test_loss:.4f}")
    torch.save(model.state_dict(), "tabular.pt")


if __name__ == "__main__":
    main()
