"""A normalising flow on coarse measurements: affine couplings, layers that set themselves by their first batch, noise against the grid."""

import argparse
import math

import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader, TensorDataset

LEVELS = 24
DIMS = 6


def measurements(count, seed):
    g = torch.Generator().manual_seed(seed)
    angle = torch.rand(count, generator=g) * 2 * math.pi
    radius = torch.where(torch.rand(count, generator=g) < 0.5, 1.0, 2.2) + 0.15 * torch.randn(count, generator=g)
    base = torch.stack([radius * angle.cos(), radius * angle.sin()], 1)
    mix = torch.randn(2, DIMS, generator=torch.Generator().manual_seed(99))
    x = torch.tanh(0.6 * base @ mix + 0.2 * torch.randn(count, DIMS, generator=g))
    return ((x + 1) / 2 * LEVELS).long().clamp(0, LEVELS - 1)


class ActNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(DIMS))
        self.log_scale = nn.Parameter(torch.zeros(DIMS))
        self.register_buffer("ready", torch.tensor(False))

    def forward(self, x):
        if self.training and not self.ready:
            with torch.no_grad():
                self.shift.copy_(-x.mean(0))
                self.log_scale.copy_(-x.std(0).log())
                self.ready.fill_(True)
        return (x + self.shift) * self.log_scale.exp(), self.log_scale.sum().expand(len(x))

    def inverse(self, y):
        return y * (-self.log_scale).exp() - self.shift


class Coupling(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        half = DIMS // 2
        self.net = nn.Sequential(nn.Linear(half, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, 2 * half))
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)
        self.register_buffer("order", torch.randperm(DIMS))

    def forward(self, x):
        kept, moved = x[:, self.order].chunk(2, 1)
        scale, shift = self.net(kept).chunk(2, 1)
        scale = 1.5 * torch.tanh(scale / 1.5)
        return torch.cat([kept, moved * scale.exp() + shift], 1), scale.sum(1)

    def inverse(self, y):
        kept, moved = y.chunk(2, 1)
        scale, shift = self.net(kept).chunk(2, 1)
        scale = 1.5 * torch.tanh(scale / 1.5)
        return torch.cat([kept, (moved - shift) * (-scale).exp()], 1)[:, self.order.argsort()]


class Flow(nn.Module):
    def __init__(self, depth, hidden):
        super().__init__()
        self.layers = nn.ModuleList()
        for _ in range(depth):
            self.layers += [ActNorm(), Coupling(hidden)]

    def forward(self, x):
        logdet = torch.zeros(len(x))
        for layer in self.layers:
            x, d = layer(x)
            logdet = logdet + d
        return x, logdet

    def sample(self, count):
        x = torch.randn(count, DIMS)
        for layer in reversed(self.layers):
            x = layer.inverse(x)
        return x


def bits(flow, cells, noise):
    x = (cells + noise) / LEVELS - 0.5
    z, logdet = flow(x)
    logp = -0.5 * (z**2).sum(1) - 0.5 * DIMS * math.log(2 * math.pi) + logdet - DIMS * math.log(LEVELS)
    return -logp / (DIMS * math.log(2))


@torch.no_grad()
def evaluate(flow, loader):
    flow.eval()
    total, count = 0.0, 0
    for (cells,) in loader:
        total += bits(flow, cells, 0.5).sum().item()
        count += len(cells)
    flow.train()
    return total / count


def main(args):
    torch.manual_seed(args.seed)
    train = DataLoader(TensorDataset(measurements(1500, 1)), args.batch, shuffle=True, drop_last=True)
    held = DataLoader(TensorDataset(measurements(500, 2)), 128)
    flow = Flow(4, 32)
    optimizer = torch.optim.Adam(flow.parameters(), lr=args.lr, betas=(0.9, 0.99))
    horizon = args.epochs * len(train)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min((s + 1) / 10, 0.5 * (1 + math.cos(math.pi * s / horizon))))
    best = math.inf
    for epoch in range(args.epochs):
        running = 0.0
        for (cells,) in train:
            loss = bits(flow, cells, torch.rand(cells.shape)).mean()
            optimizer.zero_grad()
            loss.backward()
            clip_grad_norm_(flow.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            running += loss.item()
        found = evaluate(flow, held)
        print(f"epoch {epoch} bits {running / len(train):.4f} held out {found:.4f}")
        if found < best:
            best = found
            torch.save({"flow": flow.state_dict(), "epoch": epoch, "bits": found}, "flow.pt")
    flow.load_state_dict(torch.load("flow.pt")["flow"])
    flow.eval()
    with torch.no_grad():
        drawn = flow.sample(800)
    print(f"best {best:.4f} mean of samples {drawn.mean():.4f} spread {drawn.std():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=7)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--seed", type=int, default=5)
    main(parser.parse_args())
