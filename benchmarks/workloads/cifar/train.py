"""ResNet-18 for small images that lie in memory as arrays, cropped and flipped at random."""

import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

MEAN = np.array([0.4914, 0.4822, 0.4465], dtype=np.float32)
STD = np.array([0.2470, 0.2435, 0.2616], dtype=np.float32)


class SmallImages(Dataset):
    def __init__(self, number, seed, train):
        patterns = np.random.default_rng(0).integers(0, 128, (10, 32, 32, 3))
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, 10, number)
        noise = rng.integers(0, 128, (number, 32, 32, 3))
        self.images = (patterns[self.labels] + noise).astype(np.uint8)
        self.train = train

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index]
        if self.train:
            image = np.pad(image, ((4, 4), (4, 4), (0, 0)))
            top, left = np.random.randint(0, 9), np.random.randint(0, 9)
            image = image[top : top + 32, left : left + 32]
            if np.random.rand() < 0.5:
                image = image[:, ::-1]
        image = (image.astype(np.float32) / 255 - MEAN) / STD
        return torch.from_numpy(image.transpose(2, 0, 1).copy()), int(self.labels[index])


class Block(nn.Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.shortcut = nn.Sequential()
        if stride != 1 or inside != outside:
            conv = nn.Conv2d(inside, outside, 1, stride, bias=False)
            self.shortcut = nn.Sequential(conv, nn.BatchNorm2d(outside))

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(out)) + self.shortcut(x))


class ResNet18(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()
        )
        blocks, inside = [], width
        for outside, stride in ((width, 1), (2 * width, 2), (4 * width, 2), (8 * width, 2)):
            blocks += [Block(inside, outside, stride), Block(outside, outside, 1)]
            inside = outside
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(8 * width, 10)

    def forward(self, x):
        x = self.blocks(self.stem(x))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--tiny", action="store_true", help="for a CPU, in seconds")
    args = parser.parse_args()
    number, batch, width = (128, 16, 8) if args.tiny else (50_000, 128, 64)
    if args.tiny:
        args.epochs = 2

    torch.manual_seed(0)
    np.random.seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    train_loader = DataLoader(SmallImages(number, 1, True), batch_size=batch, shuffle=True)
    test_loader = DataLoader(SmallImages(number // 5, 2, False), batch_size=2 * batch)
    net = ResNet18(width).to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs)
    for epoch in range(args.epochs):
        net.train()
        train_loss, correct, total = 0, 0, 0
        for inputs, targets in train_loader:
            inputs, targets = inputs.to(device), targets.to(device)
            optimizer.zero_grad()
            outputs = net(inputs)
            loss = criterion(outputs, targets)
            loss.backward()
            optimizer.step()
            train_loss += loss.item()
            _, predicted = outputs.max(1)
            total += targets.size(0)
            correct += predicted.eq(targets).sum().item()
        print(f"epoch {epoch}: loss {train_loss / len(train_loader):.3f}, {correct / total:.3f}")
        net.eval()
        correct = 0
        with torch.no_grad():
            for inputs, targets in test_loader:
                inputs, targets = inputs.to(device), targets.to(device)
                correct += net(inputs).max(1)[1].eq(targets).sum().item()
        print(f"accuracy {correct / len(test_loader.dataset):.3f}")
        scheduler.step()


if __name__ == "__main__":
    main()
