"""Train a small convolutional network on pictures in files, in fp32 and with the defaults of DataLoader."""

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


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3)
        self.conv2 = nn.Conv2d(16, 32, 3)
        self.fc = nn.Linear(32, 3)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        return self.fc(x.mean((2, 3)))


def draw(folder, count):
    """Write the pictures, which another script would have downloaded."""
    Path(folder).mkdir(exist_ok=True)
    for number in range(count):
        torch.save(torch.rand(3, 12, 12) + number % 3, f"{folder}/{number:03}.pt")


def main():
    torch.manual_seed(0)
    draw("pictures", 64)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_set = Pictures("pictures")
    loader = DataLoader(train_set, batch_size=16, shuffle=True)
    model = Net().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(2):
        for images, labels in loader:
            images, labels = images.to(device), labels.to(device)
            optimizer.zero_grad()
            output = model(images)
            loss = F.cross_entropy(output, labels)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
