"""Momentum contrast on waveforms: a queue of old keys as the negatives, a slow copy of the net that makes them, neighbours as the judge."""
import argparse
import math
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

LENGTH = 64
KINDS = 6


def waves(count, seed):
    gen = torch.Generator().manual_seed(seed)
    t = torch.linspace(0, 1, LENGTH)
    labels = torch.randint(0, KINDS, (count,), generator=gen)
    rows = []
    for k in labels.tolist():
        phase, pitch = torch.rand(2, generator=gen).tolist()
        w = 2 * math.pi * ((3 + pitch) * t + phase)
        shape = [w.sin(), w.sin().sign(), torch.asin(w.sin()), w.sin() * (2 * w).sin(), w.sin() + 0.7 * (3 * w).cos(), (w + 3 * t * t).sin()][k]
        rows.append(shape + 0.35 * torch.randn(LENGTH, generator=gen))
    x = torch.stack(rows)
    return (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True), labels


class TwoViews(Dataset):
    def __init__(self, x):
        self.x = x

    def __len__(self):
        return len(self.x)

    def view(self, x):
        x = torch.roll(x, int(torch.randint(0, LENGTH, ())))
        if torch.rand(()) < 0.5:
            x = -x
        x = x * (0.6 + 0.8 * torch.rand(()))
        if torch.rand(()) < 0.6:
            start = int(torch.randint(0, LENGTH - 12, ()))
            x = x.clone()
            x[start : start + 12] = 0.0
        return x + 0.15 * torch.randn(LENGTH)

    def __getitem__(self, i):
        return self.view(self.x[i]), self.view(self.x[i])


class Encoder(nn.Module):
    def __init__(self, width=24, dim=32):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(1, width, 7, stride=2, padding=3), nn.BatchNorm1d(width), nn.ReLU(),
            nn.Conv1d(width, 2 * width, 5, stride=2, padding=2), nn.BatchNorm1d(2 * width), nn.ReLU(),
            nn.Conv1d(2 * width, 2 * width, 3, stride=2, padding=1), nn.BatchNorm1d(2 * width), nn.ReLU(),
        )
        self.head = nn.Sequential(nn.Linear(2 * width, 2 * width), nn.ReLU(), nn.Linear(2 * width, dim))

    def features(self, x):
        return self.body(x[:, None]).mean(2)

    def forward(self, x):
        return F.normalize(self.head(self.features(x)), dim=1)


class MoCo(nn.Module):
    def __init__(self, size, momentum, temperature):
        super().__init__()
        self.size, self.m, self.t = size, momentum, temperature
        self.query = Encoder()
        self.key = Encoder()
        self.key.load_state_dict(self.query.state_dict())
        for p in self.key.parameters():
            p.requires_grad = False
        self.register_buffer("queue", F.normalize(torch.randn(size, 32), dim=1))
        self.register_buffer("ptr", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def update_key(self):
        for slow, fast in zip(self.key.parameters(), self.query.parameters()):
            slow.data = slow.data * self.m + fast.data * (1.0 - self.m)

    @torch.no_grad()
    def enqueue(self, keys):
        ptr = int(self.ptr)
        n = keys.shape[0]
        self.queue[ptr : ptr + n] = keys
        self.ptr[0] = (ptr + n) % self.size

    def forward(self, a, b):
        q = self.query(a)
        with torch.no_grad():
            self.update_key()
            order = torch.randperm(len(b))
            half = len(b) // 2
            k = torch.cat([self.key(b[order[:half]]), self.key(b[order[half:]])])
            k = k[order.argsort()]
        positive = torch.einsum("nc,nc->n", q, k).unsqueeze(1)
        negative = torch.einsum("nc,kc->nk", q, self.queue.clone().detach())
        logits = torch.cat([positive, negative], dim=1) / self.t
        self.enqueue(k)
        return logits, torch.zeros(len(a), dtype=torch.long)


def adjust(optimizer, epoch, args):
    lr = args.lr * (epoch + 1) / args.warmup if epoch < args.warmup else args.lr * 0.5 * (1 + math.cos(math.pi * (epoch - args.warmup) / (args.epochs - args.warmup)))
    for group in optimizer.param_groups:
        group["lr"] = lr
    return lr


@torch.no_grad()
def neighbours(net, bank, bank_labels, x, labels, k=15, t=0.1):
    net.eval()
    stored = F.normalize(net.features(bank), dim=1)
    right = 0
    for piece, truth in zip(x.split(50), labels.split(50)):
        close, which = (F.normalize(net.features(piece), dim=1) @ stored.T).topk(k, dim=1)
        votes = torch.zeros(len(piece), KINDS).scatter_add_(1, bank_labels[which], (close / t).exp())
        right += (votes.argmax(1) == truth).sum().item()
    net.train()
    return right / len(x)


def main():
    parser = argparse.ArgumentParser(description="MoCo on waveforms")
    parser.add_argument("--epochs", default=8, type=int)
    parser.add_argument("--warmup", default=2, type=int)
    parser.add_argument("-b", "--batch-size", default=64, type=int)
    parser.add_argument("--lr", default=0.15, type=float)
    parser.add_argument("--queue", default=512, type=int)
    parser.add_argument("--momentum", default=0.97, type=float)
    parser.add_argument("--temperature", default=0.1, type=float)
    parser.add_argument("--seed", default=4, type=int)
    parser.add_argument("--out", default="runs")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    os.makedirs(args.out, exist_ok=True)
    x, labels = waves(1400, 1)
    test_x, test_labels = waves(400, 2)
    loader = DataLoader(TwoViews(x), batch_size=args.batch_size, shuffle=True, drop_last=True)
    model = MoCo(args.queue, args.momentum, args.temperature)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.query.parameters(), args.lr, momentum=0.9, weight_decay=5e-4)
    for epoch in range(args.epochs):
        lr = adjust(optimizer, epoch, args)
        model.train()
        losses, right = 0.0, 0
        for a, b in loader:
            logits, target = model(a, b)
            loss = criterion(logits, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses += loss.item()
            right += (logits.argmax(1) == 0).float().mean().item()
        found = neighbours(model.query, x, labels, test_x, test_labels)
        print(f"Epoch [{epoch + 1}/{args.epochs}] lr {lr:.4f} loss {losses / len(loader):.4f} instance {right / len(loader):.3f} knn {found:.4f}", flush=True)
        torch.save({"epoch": epoch + 1, "state_dict": model.state_dict(), "optimizer": optimizer.state_dict()}, os.path.join(args.out, "last.pt"))


if __name__ == "__main__":
    main()
