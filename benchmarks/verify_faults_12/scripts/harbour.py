"""Ships are judged by what they report: a kind, a delay and whether they turn; three losses weigh each other, rows are mixed, the end is an average."""
import argparse
import random

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import AveragedModel, update_bn
from torch.utils.data import DataLoader, Dataset, Sampler

FEATURES, KINDS = 14, 5


class Reports(Dataset):
    def __init__(self, count, seed, noisy):
        rng = np.random.default_rng(seed)
        middles = np.random.default_rng(3).normal(0, 1.2, (KINDS, FEATURES))
        self.kind = rng.choice(KINDS, count, p=[0.4, 0.25, 0.2, 0.1, 0.05])
        self.x = (middles[self.kind] + rng.normal(0, 1.0, (count, FEATURES))).astype(np.float32)
        self.delay = (self.x[:, :3].sum(1) * 2 + self.kind + rng.normal(0, 0.5, count)).astype(np.float32)
        self.turns = (self.x[:, 4] * self.x[:, 5] + rng.normal(0, 0.3, count) > 0).astype(np.float32)
        self.noisy = noisy

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        x = self.x[i]
        if self.noisy:
            x = x + 0.1 * np.random.randn(FEATURES).astype(np.float32)
            x = np.where(np.random.rand(FEATURES) < 0.05, np.float32(0), x)
        return torch.from_numpy(x), int(self.kind[i]), self.delay[i], self.turns[i]


class Balanced(Sampler):
    """As many of each kind in a batch, as far as it goes."""

    def __init__(self, kinds, batch, seed):
        self.rows = [np.flatnonzero(kinds == k).tolist() for k in range(KINDS)]
        self.batch, self.rng = batch, random.Random(seed)
        self.length = len(kinds) // batch

    def __len__(self):
        return self.length

    def __iter__(self):
        for _ in range(self.length):
            yield [self.rng.choice(self.rows[i % KINDS]) for i in range(self.batch)]


class Net(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(FEATURES, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.15), nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU())
        self.kind, self.delay, self.turns = nn.Linear(width, KINDS), nn.Linear(width, 1), nn.Linear(width, 1)
        self.doubt = nn.Parameter(torch.zeros(3))

    def forward(self, x):
        h = self.body(x)
        return self.kind(h), self.delay(h).squeeze(1), self.turns(h).squeeze(1)


def losses(out, kind, delay, turns):
    return torch.stack([F.cross_entropy(out[0], kind, label_smoothing=0.05), F.smooth_l1_loss(out[1], delay), F.binary_cross_entropy_with_logits(out[2], turns)])


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    right, off, turned, count = 0, 0.0, 0, 0
    for x, kind, delay, turns in loader:
        a, b, c = model(x)
        right += (a.argmax(1) == kind).sum().item()
        off += (b - delay).abs().sum().item()
        turned += ((c > 0).float() == turns).sum().item()
        count += len(x)
    return right / count, off / count, turned / count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=40)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--alpha", type=float, default=0.3)
    parser.add_argument("--average-from", type=int, default=5)
    parser.add_argument("--seed", type=int, default=2)
    args = parser.parse_args()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    train, held = Reports(700, 1, True), Reports(300, 2, False)
    loader = DataLoader(train, batch_sampler=Balanced(train.kind, args.batch, args.seed))
    judge = DataLoader(held, 64)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, nesterov=True, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 6], gamma=0.4)
    averaged = AveragedModel(model)
    best = 0.0
    for epoch in range(args.epochs):
        model.train()
        sums, count = torch.zeros(3), 0
        for x, kind, delay, turns in loader:
            share = float(np.random.beta(args.alpha, args.alpha))
            order = torch.randperm(len(x))
            out = model(share * x + (1 - share) * x[order])
            parts = share * losses(out, kind, delay, turns) + (1 - share) * losses(out, kind[order], delay[order], turns[order])
            loss = (torch.exp(-model.doubt) * parts + 0.5 * model.doubt).sum()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_value_(model.parameters(), 0.5)
            optimizer.step()
            sums += parts.detach()
            count += 1
        scheduler.step()
        if epoch >= args.average_from:
            averaged.update_parameters(model)
        kind, off, turned = evaluate(model, judge)
        print(f"epoch {epoch + 1} losses {' '.join(f'{v:.4f}' for v in (sums / count).tolist())} kind {kind:.3f} off {off:.4f} turned {turned:.3f}")
        if kind + turned > best:
            best = kind + turned
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict(), "epoch": epoch}, "best.pt")
    update_bn(DataLoader(train, 100), averaged)
    kind, off, turned = evaluate(averaged, judge)
    print(f"averaged kind {kind:.3f} off {off:.4f} turned {turned:.3f}")
    torch.save(averaged.module.state_dict(), "averaged.pt")


if __name__ == "__main__":
    main()
