"""Count blobs (cells) in small microscope-like images: a CNN regressor with augmentation."""
import argparse
import copy
import math
import os
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


def make_images(n, rng, size=32):
    """n images with 1..8 blobs each; returns float32 images (n,1,s,s) and counts (n,)."""
    yy, xx = np.mgrid[0:size, 0:size]
    imgs = np.zeros((n, 1, size, size), dtype=np.float32)
    counts = rng.integers(1, 9, size=n)
    for i in range(n):
        img = 0.15 + 0.1 * rng.random() * (xx / size)
        for _ in range(counts[i]):
            cy, cx = rng.uniform(5, size - 5, size=2)
            s = rng.uniform(1.2, 1.8)
            img = img + rng.uniform(0.7, 1.0) * np.exp(-((yy - cy) ** 2 + (xx - cx) ** 2) / (2 * s * s))
        imgs[i, 0] = img + 0.04 * rng.normal(size=img.shape)
    return imgs, counts.astype(np.float32)


class BlobData(Dataset):
    def __init__(self, images, counts, mean, std, train):
        self.images = torch.from_numpy(images)
        self.counts = torch.from_numpy(counts)
        self.mean, self.std, self.train = mean, std, train

    def __len__(self):
        return len(self.counts)

    def __getitem__(self, i):
        x = self.images[i]
        if self.train:
            if torch.rand(()) < 0.5:
                x = x.flip(-1)
            if torch.rand(()) < 0.5:
                x = x.flip(-2)
            dy, dx = torch.randint(0, 5, (2,)).tolist()
            x = F.pad(x, (2, 2, 2, 2), mode="replicate")[:, dy:dy + 32, dx:dx + 32]
            x = x * (0.8 + 0.4 * torch.rand(()))
            x = x + 0.03 * torch.randn_like(x)
        return (x - self.mean) / self.std, self.counts[i]


class Counter(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        def block(i, o):
            return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU())
        self.features = nn.Sequential(block(1, width), nn.MaxPool2d(2), block(width, 2 * width),
                                      nn.MaxPool2d(2), block(2 * width, 2 * width))
        self.head = nn.Conv2d(2 * width, 1, 1)

    def forward(self, x):
        return F.softplus(self.head(self.features(x))).sum(dim=(1, 2, 3)) * 0.1


def evaluate(model, loader, device):
    model.eval()
    err, sq, n = 0.0, 0.0, 0
    with torch.no_grad():
        for x, y in loader:
            p = model(x.to(device))
            err += (p - y.to(device)).abs().sum().item()
            sq += ((p - y.to(device)) ** 2).sum().item()
            n += len(y)
    return err / n, math.sqrt(sq / n)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=8)
    ap.add_argument("--batch-size", type=int, default=50)
    ap.add_argument("--lr", type=float, default=0.005)
    ap.add_argument("--seed", type=int, default=3)
    ap.add_argument("--out", default=".")
    args = ap.parse_args()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    device = torch.device("cpu")

    rng = np.random.default_rng(2024)
    tr_x, tr_y = make_images(1620, rng)
    va_x, va_y = make_images(400, rng)
    mean, std = float(tr_x.mean()), float(tr_x.std())
    train_ds = BlobData(tr_x, tr_y, mean, std, train=True)
    val_ds = BlobData(va_x, va_y, mean, std, train=False)
    train_dl = DataLoader(train_ds, batch_size=args.batch_size, shuffle=True, drop_last=True)
    val_dl = DataLoader(val_ds, batch_size=64)

    model = Counter().to(device)
    opt = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4, nesterov=True)
    total = args.epochs * len(train_dl)
    warm = total // 10
    step = 0
    best_mae, best_model = float("inf"), None
    for epoch in range(args.epochs):
        model.train()
        running = 0.0
        for x, y in train_dl:
            lr = args.lr * (step + 1) / warm if step < warm else \
                args.lr * 0.5 * (1 + math.cos(math.pi * (step - warm) / (total - warm)))
            for g in opt.param_groups:
                g["lr"] = lr
            pred = model(x.to(device))
            loss = F.smooth_l1_loss(pred, y.to(device))
            opt.zero_grad()
            loss.backward()
            opt.step()
            running += loss.item()
            step += 1
        mae, rmse = evaluate(model, val_dl, device)
        print(f"epoch {epoch} train loss {running / len(train_dl):.4f} val mae {mae:.4f} rmse {rmse:.4f}", flush=True)
        if mae < best_mae:
            best_mae, best_model = mae, copy.deepcopy(model)
    os.makedirs(args.out, exist_ok=True)
    torch.save({"model": best_model.state_dict(), "mae": best_mae}, os.path.join(args.out, "counter.pt"))
    print(f"best val mae {best_mae:.4f}")


if __name__ == "__main__":
    main()
