"""Small CNN on procedurally generated texture patches, augmentation in the dataset."""
import argparse
import os
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

NUM_CLASSES = 6


def make_images(n, rng):
    """A short oriented stroke plus clutter; the class is stroke angle (mod 180, mirrored pairs merged)."""
    yy, xx = np.mgrid[0:18, 0:18].astype(np.float32)
    labels = rng.integers(0, NUM_CLASSES, n)
    images = np.empty((n, 3, 18, 18), dtype=np.float32)
    for i, lab in enumerate(labels):
        freq = (0.45, 0.85)[lab % 2]
        ang = (0.0, 0.78, 1.57)[lab // 2] + rng.normal(0, 0.16)
        if rng.random() < 0.5:
            ang = -ang
        cx, cy = rng.uniform(6, 12, 2)
        u = (xx - cx) * np.cos(ang) + (yy - cy) * np.sin(ang)
        env = np.exp(-((xx - cx) ** 2 + (yy - cy) ** 2) / 22.0)
        base = np.sin(2 * freq * u + rng.uniform(0, 6.28)) * env
        col = rng.uniform(0.3, 1.0, 3).astype(np.float32)
        images[i] = base[None] * col[:, None, None] + rng.normal(0, 0.28, (3, 18, 18))
    return images, labels.astype(np.int64)


class Patches(Dataset):
    def __init__(self, images, labels, train):
        self.images, self.labels, self.train = images, labels, train

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        img = self.images[i]
        if self.train:
            img = self.augment(img)
        return torch.from_numpy(np.ascontiguousarray(img)), int(self.labels[i])

    def augment(self, img):
        if random.random() < 0.5:
            img = img[:, :, ::-1]
        padded = np.pad(img, ((0, 0), (3, 3), (3, 3)))
        dy, dx = np.random.randint(0, 7, 2)
        img = padded[:, dy:dy + 18, dx:dx + 18]
        gain = np.random.uniform(0.6, 1.4)
        return (img * gain).astype(np.float32)


def seed_worker(worker_id):
    s = torch.initial_seed() % 2**32
    random.seed(s)
    np.random.seed(s)


def conv_bn(cin, cout, stride=1):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(conv_bn(3, 16), conv_bn(16, 24, 2), conv_bn(24, 32, 2))
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(32, NUM_CLASSES)

    def forward(self, x):
        return self.head(self.drop(self.body(x).mean((2, 3))))


def param_groups(model, wd):
    decay = [p for p in model.parameters() if p.ndim > 1]
    plain = [p for p in model.parameters() if p.ndim <= 1]
    return [{"params": decay, "weight_decay": wd}, {"params": plain, "weight_decay": 0.0}]


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    loss_sum, hits, count = 0.0, 0, 0
    for x, y in loader:
        out = model(x)
        loss_sum += F.cross_entropy(out, y, reduction="sum").item()
        hits += (out.argmax(1) == y).sum().item()
        count += y.numel()
    return loss_sum / count, hits / count


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=9)
    ap.add_argument("--batch-size", type=int, default=48)
    ap.add_argument("--lr", type=float, default=6e-3)
    ap.add_argument("--wd", type=float, default=0.1)
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--out", default="runs")
    args = ap.parse_args()

    torch.set_num_threads(1)
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)

    rng = np.random.default_rng(1234)
    xtr, ytr = make_images(700, rng)
    xte, yte = make_images(500, rng)
    gen = torch.Generator().manual_seed(args.seed)
    train_loader = DataLoader(Patches(xtr, ytr, True), batch_size=args.batch_size, shuffle=True, num_workers=2,
                              worker_init_fn=seed_worker, generator=gen)
    test_loader = DataLoader(Patches(xte, yte, False), batch_size=64)

    model = Net()
    opt = torch.optim.AdamW(param_groups(model, args.wd), lr=args.lr)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=args.lr, total_steps=args.epochs * len(train_loader))
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)

    for epoch in range(args.epochs):
        model.train()
        running, seen = 0.0, 0
        for x, y in train_loader:
            loss = criterion(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            running += loss.item() * y.numel()
            seen += y.numel()
        test_loss, test_acc = evaluate(model, test_loader)
        print(f"epoch {epoch} train_loss {running / seen:.4f} test_loss {test_loss:.4f} test_acc {test_acc:.4f}")

    os.makedirs(args.out, exist_ok=True)
    torch.save({"model": model.state_dict(), "acc": test_acc}, os.path.join(args.out, "aug_cls.pt"))


if __name__ == "__main__":
    main()
