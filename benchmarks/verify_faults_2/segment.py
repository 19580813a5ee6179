"""Segmentation: a small encoder and decoder, cross entropy and dice of every image, flips drawn for every sample, the best model kept."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(5)


class Blobs(Dataset):
    def __init__(self, count, seed, train):
        generator = torch.Generator().manual_seed(seed)
        self.train = train
        size = torch.randint(2, 9, (count,), generator=generator)
        self.masks = torch.zeros(count, 16, 16)
        for i in range(count):
            row, column = torch.randint(0, 8, (2,), generator=generator).tolist()
            self.masks[i, row : row + size[i], column : column + size[i]] = 1
        noise = torch.randn(count, 1, 16, 16, generator=generator)
        self.images = self.masks[:, None] + 0.6 * noise

    def __len__(self):
        return len(self.masks)

    def __getitem__(self, index):
        image, mask = self.images[index], self.masks[index]
        if self.train and torch.rand(()) < 0.5:
            image, mask = image.flip(-1), mask.flip(-1)
        if self.train:
            image = image * (0.8 + 0.4 * torch.rand(()))
        return image, mask


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.deep = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.drop = nn.Dropout2d(0.1)
        self.up = nn.Conv2d(24, 1, 3, padding=1)

    def forward(self, x):
        a = self.down(x)
        b = self.drop(self.deep(F.max_pool2d(a, 2)))
        b = F.interpolate(b, scale_factor=2, mode="bilinear", align_corners=False)
        return self.up(torch.cat([a, b], 1))[:, 0]


def dice(logits, mask):
    p = torch.sigmoid(logits)
    both = (p * mask).sum((1, 2))
    return (1 - (2 * both + 1) / (p.sum((1, 2)) + mask.sum((1, 2)) + 1)).mean()


def evaluate(model, loader):
    model.eval()
    total, count = 0.0, 0
    with torch.no_grad():
        for image, mask in loader:
            guess = model(image) > 0
            both = (guess & (mask > 0.5)).sum((1, 2)).float()
            either = (guess | (mask > 0.5)).sum((1, 2)).float()
            total += (both / either.clamp(min=1)).sum().item()
            count += len(image)
    return total / count


def main():
    train = DataLoader(Blobs(96, 0, True), batch_size=12, shuffle=True)
    test = DataLoader(Blobs(40, 1, False), batch_size=16)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    best = 0.0
    for epoch in range(5):
        model.train()
        total = 0.0
        for image, mask in train:
            logits = model(image)
            loss = F.binary_cross_entropy_with_logits(logits, mask) + dice(logits, mask)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        iou = evaluate(model, test)
        print(f"epoch {epoch}: loss {total / len(train):.4f} iou {iou:.4f}")
        if iou > best:
            best = iou
            torch.save(model.state_dict(), "best.pt")


main()
