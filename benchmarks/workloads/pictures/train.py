"""A small network on pictures that are kept in memory as PNG and augmented with PIL and NumPy."""

import argparse
import io
import random

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset


def drawn(number, size):
    """Stripes of one of four directions, in random colours, as (PNG, class) pairs."""
    rng = np.random.default_rng(1)
    rows, columns = np.mgrid[0:size, 0:size]
    pictures = []
    for n in range(number):
        kind = n % 4
        waves = [rows, columns, rows + columns, rows - columns][kind]
        grey = 0.5 + 0.5 * np.sin(waves * rng.uniform(0.3, 0.6) + rng.uniform(0, 6))
        picture = grey[..., None] * rng.uniform(60, 255, 3) + rng.normal(0, 25, (size, size, 3))
        file = io.BytesIO()
        Image.fromarray(picture.clip(0, 255).astype(np.uint8)).save(file, "PNG")
        pictures.append((file.getvalue(), kind))
    return pictures


class Stripes(Dataset):
    def __init__(self, pictures, size, augment):
        self.pictures = pictures
        self.size = size
        self.augment = augment

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        data, label = self.pictures[index]
        picture = Image.open(io.BytesIO(data)).convert("RGB")
        if self.augment:
            picture = picture.rotate(random.uniform(-10, 10), resample=Image.BICUBIC)
            left, top = random.randint(0, 8), random.randint(0, 8)
            picture = picture.crop((left, top, left + self.size, top + self.size))
        picture = picture.resize((64, 64), Image.BILINEAR)
        array = np.asarray(picture, dtype=np.float32) / 255.0
        if self.augment:
            array = array + np.random.normal(0, 0.02, array.shape).astype(np.float32)
        array = (array - 0.5) / 0.25
        return torch.from_numpy(array.transpose(2, 0, 1).copy()), label


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, stride=2, padding=1)
        self.second = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.third = nn.Conv2d(32, 32, 3, stride=2, padding=1)
        self.head = nn.Linear(32, 4)

    def forward(self, x):
        x = F.relu(self.first(x))
        x = F.relu(self.second(x))
        x = F.relu(self.third(x))
        return self.head(x.mean(dim=(2, 3)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--pictures", type=int, default=800)
    parser.add_argument("--tiny", action="store_true", help="few pictures")
    args = parser.parse_args()
    if args.tiny:
        args.pictures, args.epochs = 160, 2

    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    pictures = drawn(args.pictures, 96)
    cut = args.pictures * 3 // 4
    train_loader = DataLoader(Stripes(pictures[:cut], 88, True), batch_size=32, shuffle=True)
    test_loader = DataLoader(Stripes(pictures[cut:], 96, False), batch_size=32)

    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(args.epochs):
        model.train()
        total = 0.0
        for images, labels in train_loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            total += loss.item()
        model.eval()
        correct = 0
        with torch.no_grad():
            for images, labels in test_loader:
                correct += (model(images).argmax(1) == labels).sum().item()
        accuracy = correct / len(test_loader.dataset)
        print(f"epoch {epoch}: loss {total / len(train_loader):.4f}, accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
