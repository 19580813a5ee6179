"""As train.py, tuned by hand: images on the device, cropped in batches, 16 bits, compiled."""

import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MEAN = torch.tensor([0.4914, 0.4822, 0.4465]).view(3, 1, 1)
STD = torch.tensor([0.2470, 0.2435, 0.2616]).view(3, 1, 1)


class SmallImages:
    def __init__(self, number, seed, train, device):
        patterns = np.random.default_rng(0).integers(0, 128, (10, 32, 32, 3))
        rng = np.random.default_rng(seed)
        labels = rng.integers(0, 10, number)
        noise = rng.integers(0, 128, (number, 32, 32, 3))
        images = (patterns[labels] + noise).astype(np.uint8)
        images = torch.from_numpy(images).to(device).permute(0, 3, 1, 2).float() / 255
        if train:
            images = F.pad(images, [4] * 4)
        images = (images - MEAN.to(device)) / STD.to(device)
        self.images = images.to(memory_format=torch.channels_last)
        self.labels = torch.from_numpy(labels).to(device)
        self.train = train

    def __len__(self):
        return len(self.images)

    def batches(self, size):
        device = self.images.device
        place = torch.randperm if self.train else torch.arange
        for rows in place(len(self), device=device).split(size):
            if not self.train:
                yield self.images[rows], self.labels[rows]
                continue
            n, side = len(rows), torch.arange(32, device=device)
            y, x = torch.randint(9, (2, n, 1), device=device) + side
            x = torch.where(torch.rand(n, 1, device=device) < 0.5, x.flip(1), x)
            images = self.images.permute(0, 2, 3, 1)[rows[:, None, None], y[:, :, None], x[:, None]]
            yield images.permute(0, 3, 1, 2), self.labels[rows]


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
    on_gpu = device == "cuda"
    torch.backends.cudnn.benchmark = True
    train_set = SmallImages(number, 1, True, device)
    test_set = SmallImages(number // 5, 2, False, device)
    net = ResNet18(width).to(device).to(memory_format=torch.channels_last)
    compiled = torch.compile(net, mode="reduce-overhead") if on_gpu else net
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(
        net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, fused=True
    )
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs)
    for epoch in range(args.epochs):
        net.train()
        train_loss, correct, total = 0, 0, 0
        for inputs, targets in train_set.batches(batch):
            optimizer.zero_grad()
            with torch.autocast(device, torch.bfloat16, enabled=on_gpu):
                outputs = compiled(inputs)
                loss = criterion(outputs, targets)
            loss.backward()
            optimizer.step()
            train_loss += loss.detach()
            _, predicted = outputs.max(1)
            total += targets.size(0)
            correct += predicted.eq(targets).sum()
        print(f"epoch {epoch}: loss {train_loss / -(-number // batch):.3f}, {correct / total:.3f}")
        net.eval()
        correct = 0
        with torch.no_grad(), torch.autocast(device, torch.bfloat16, enabled=on_gpu):
            for inputs, targets in test_set.batches(2 * batch):
                correct += compiled(inputs).max(1)[1].eq(targets).sum()
        print(f"accuracy {correct / len(test_set):.3f}")
        scheduler.step()


if __name__ == "__main__":
    main()
