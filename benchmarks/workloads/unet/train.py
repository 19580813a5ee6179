"""A U-Net that segments generated scans in memory, flipped and turned with their masks."""

import argparse
import random

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, random_split


class Scans(Dataset):
    """Grey scans with bright discs, and the masks of the discs."""

    def __init__(self, number, side):
        rng = np.random.default_rng(0)
        y, x = np.mgrid[0:side, 0:side]
        self.images, self.masks = [], []
        for _ in range(number):
            middle, radius = rng.uniform(0.25, 0.75, 2) * side, rng.uniform(0.1, 0.2) * side
            mask = (x - middle[0]) ** 2 + (y - middle[1]) ** 2 < radius**2
            self.masks.append(mask.astype(np.uint8))
            self.images.append((100 * mask + rng.integers(0, 120, mask.shape)).astype(np.uint8))

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image, mask = self.images[index], self.masks[index]
        if random.random() > 0.5:
            image, mask = np.fliplr(image), np.fliplr(mask)
        turns = random.randint(0, 3)
        image, mask = np.rot90(image, turns), np.rot90(mask, turns)
        image = torch.from_numpy(image.copy()).float() / 255.0
        mask = torch.from_numpy(mask.copy()).float()
        return image.unsqueeze(0), mask.unsqueeze(0)


class DoubleConv(nn.Sequential):
    def __init__(self, inside, outside):
        first, second = nn.Conv2d(inside, outside, 3, 1, 1), nn.Conv2d(outside, outside, 3, 1, 1)
        norms = nn.BatchNorm2d(outside), nn.BatchNorm2d(outside)
        super().__init__(first, norms[0], nn.ReLU(True), second, norms[1], nn.ReLU(True))


class UNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        sizes = [width << n for n in range(5)]
        self.inc = DoubleConv(1, width)
        self.pool = nn.MaxPool2d(2)
        self.down = nn.ModuleList(DoubleConv(a, b) for a, b in zip(sizes, sizes[1:]))
        backwards = list(zip(sizes[:0:-1], sizes[-2::-1]))
        self.up = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, stride=2) for a, b in backwards)
        self.conv = nn.ModuleList(DoubleConv(a, b) for a, b in backwards)
        self.out = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        x = self.inc(x)
        kept = []
        for down in self.down:
            kept.append(x)
            x = down(self.pool(x))
        for up, conv in zip(self.up, self.conv):
            x = conv(torch.cat([kept.pop(), up(x)], dim=1))
        return torch.sigmoid(self.out(x))


def dice_loss(pred, target, smooth=1.0):
    intersection = (pred * target).sum(dim=(2, 3))
    whole = pred.sum(dim=(2, 3)) + target.sum(dim=(2, 3))
    return 1 - ((2.0 * intersection + smooth) / (whole + smooth)).mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--tiny", action="store_true", help="for a CPU, in seconds")
    args = parser.parse_args()
    number, side, batch, width = (40, 32, 2, 4) if args.tiny else (2_000, 256, 16, 64)
    if args.tiny:
        args.epochs = 2

    torch.manual_seed(0)
    random.seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data = Scans(number, side)
    train_set, val_set = random_split(data, [number - number // 5, number // 5])
    train_loader = DataLoader(train_set, batch_size=batch, shuffle=True)
    val_loader = DataLoader(val_set, batch_size=batch)
    model = UNet(width).to(device)
    bce = nn.BCELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        model.train()
        epoch_loss = 0
        for images, masks in train_loader:
            images = images.to(device)
            masks = masks.to(device)
            pred = model(images)
            loss = bce(pred, masks) + dice_loss(pred, masks)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            epoch_loss += loss.item()
        model.eval()
        dice = 0
        with torch.no_grad():
            for images, masks in val_loader:
                images, masks = images.to(device), masks.to(device)
                dice += 1 - dice_loss((model(images) > 0.5).float(), masks).item()
        print(f"epoch {epoch}: {epoch_loss / len(train_loader):.4f}, {dice / len(val_loader):.4f}")


if __name__ == "__main__":
    main()
