"""Cell segmentation with a small U-Net: BCE + Dice on the labelled pixels, lower learning rate on a plateau."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=0.03)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--patience", type=int, default=1)
    parser.add_argument("--seed", type=int, default=3)
    return parser.parse_args()


def synthesize(n, seed, size=32):
    """Bright ellipses under uneven light, masks, and which pixels the annotator has looked at."""
    g = torch.Generator().manual_seed(seed)
    yy, xx = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    images, masks, looked = torch.zeros(n, 1, size, size), torch.zeros(n, 1, size, size), torch.ones(n, 1, size, size)
    for i in range(n):
        for _ in range(int(torch.randint(1, 6, (1,), generator=g))):
            cy, cx = (torch.rand(2, generator=g) * size).tolist()
            a, b = (2 + 4 * torch.rand(2, generator=g)).tolist()
            inside = ((yy - cy) / a) ** 2 + ((xx - cx) / b) ** 2 < 1
            masks[i, 0][inside] = 1.0
            images[i, 0][inside] += 0.4 + 0.5 * float(torch.rand(1, generator=g))
        if torch.rand(1, generator=g) < 0.5:
            row = int(torch.randint(0, size - 8, (1,), generator=g))
            looked[i, 0, row : row + 8] = 0.0
            images[i, 0, row : row + 8] += 0.5
        images[i, 0] += 0.6 * (xx / size - 0.3) * float(torch.randn(1, generator=g))
    images += 0.45 * torch.randn(images.shape, generator=g)
    return images, masks, looked


def augment(images, masks, looked):
    """Mirror every picture at random, left-right and up-down; change its contrast."""
    images, masks, looked = images.clone(), masks.clone(), looked.clone()
    across, down = torch.rand(len(images)) < 0.5, torch.rand(len(images)) < 0.5
    contrast = 0.8 + 0.4 * torch.rand(len(images), 1, 1, 1)
    for i in range(len(images)):
        for batch in (images, masks, looked):
            if across[i]:
                batch[i] = batch[i].flip(-1)
            if down[i]:
                batch[i] = batch[i].flip(-2)
    return images * contrast, masks, looked


class Double(nn.Sequential):
    def __init__(self, cin, cout):
        super().__init__(
            nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True),
            nn.Conv2d(cout, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True),
        )


class UNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.enc1, self.enc2, self.mid = Double(1, width), Double(width, 2 * width), Double(2 * width, 4 * width)
        self.up2, self.up1 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2), nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.dec2, self.dec1 = Double(4 * width, 2 * width), Double(2 * width, width)
        self.dropout = nn.Dropout2d(0.1)
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        e1 = self.enc1(x)
        e2 = self.enc2(F.max_pool2d(e1, 2))
        m = self.dropout(self.mid(F.max_pool2d(e2, 2)))
        d2 = self.dec2(torch.cat([self.up2(m), e2], 1))
        d1 = self.dec1(torch.cat([self.up1(d2), e1], 1))
        return self.head(d1)


def dice_loss(logits, masks, looked, eps=1.0):
    probs = torch.sigmoid(logits) * looked
    masks = masks * looked
    overlap = (probs * masks).sum((1, 2, 3))
    size = probs.sum((1, 2, 3)) + masks.sum((1, 2, 3))
    return (1 - (2 * overlap + eps) / (size + eps)).mean()


def bce_loss(logits, masks, looked):
    loss = F.binary_cross_entropy_with_logits(logits, masks, reduction="none")
    return (loss * looked).sum() / looked.sum()


def evaluate(model, data, batch_size=40):
    model.eval()
    scores = []
    with torch.no_grad():
        for images, masks, looked in zip(*(part.split(batch_size) for part in data)):
            found = (model(images) > 0).float() * looked
            masks = masks * looked
            overlap = (found * masks).sum((1, 2, 3))
            scores.append((2 * overlap + 1) / (found.sum((1, 2, 3)) + masks.sum((1, 2, 3)) + 1))
    return torch.cat(scores).mean().item()


def main():
    args = get_args()
    torch.manual_seed(args.seed)
    train, val, test = synthesize(266, 1), synthesize(80, 2), synthesize(80, 3)
    model = UNet(args.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, nesterov=True, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="max", factor=0.4, patience=args.patience)
    best = -1.0
    for epoch in range(args.epochs):
        model.train()
        losses, count = 0.0, 0
        for index in torch.randperm(len(train[0])).split(args.batch_size):
            images, masks, looked = augment(*(part[index] for part in train))
            logits = model(images)
            loss = bce_loss(logits, masks, looked) + dice_loss(logits, masks, looked)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses += loss.item() * len(index)
            count += len(index)
        dice = evaluate(model, val)
        scheduler.step(dice)
        print(f"[{epoch + 1}/{args.epochs}] loss {losses / count:.5f} val dice {dice:.5f} lr {optimizer.param_groups[0]['lr']:.6f}")
        if dice > best:
            best = dice
            torch.save({"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict(), "dice": dice}, "cells_best.pt")
    model.load_state_dict(torch.load("cells_best.pt")["model"])
    print(f"best val dice {best:.5f} test dice {evaluate(model, test):.5f}")


if __name__ == "__main__":
    main()
