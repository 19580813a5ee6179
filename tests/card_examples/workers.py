"""Train a small network on pictures in files, which worker processes read; the workers are started anew in every epoch."""

import argparse
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self, folder):
        self.paths = sorted(Path(folder).glob("*.pt"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return torch.load(self.paths[index]), index % 3


def draw(folder, count):
    """Write the pictures, which another script would have downloaded."""
    Path(folder).mkdir(exist_ok=True)
    for number in range(count):
        torch.save(torch.rand(3, 12, 12) + number % 3, f"{folder}/{number:03}.pt")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    draw("pictures", 64)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_set = Pictures("pictures")
    loader = DataLoader(train_set, batch_size=16, shuffle=True, num_workers=args.workers)
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 12 * 12, 3)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(2):
        for images, labels in loader:
            images, labels = images.to(device), labels.to(device)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
