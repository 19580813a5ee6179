"""Small pictures are painted out of noise: guidance without a classifier, an average of the weights, losses weighed by the noise."""
import argparse
import copy
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SIZE, KINDS = 10, 3


def pictures(count, seed):
    gen = torch.Generator().manual_seed(seed)
    kinds = torch.randint(0, KINDS, (count,), generator=gen)
    at = torch.arange(SIZE).float()
    middle = 3 + 4 * torch.rand(count, 2, generator=gen)
    down, across = at[None, :, None] - middle[:, 0, None, None], at[None, None, :] - middle[:, 1, None, None]
    shapes = torch.stack([
        (down.square() + across.square() < 6).float(),
        ((down.abs() < 1.2) | (across.abs() < 1.2)).float(),
        ((down + across).abs() < 1.5).float().expand(count, SIZE, SIZE),
    ], 1)
    return (2 * shapes[torch.arange(count), kinds] - 1)[:, None], kinds


class Net(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.kind = nn.Embedding(KINDS + 1, width)
        self.time = nn.Sequential(nn.Linear(16, width), nn.SiLU(), nn.Linear(width, width))
        self.first = nn.Conv2d(1, width, 3, padding=1)
        self.blocks = nn.ModuleList(nn.Sequential(nn.GroupNorm(4, width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1), nn.Dropout(0.1)) for _ in range(3))
        self.last = nn.Conv2d(width, 1, 3, padding=1)

    def forward(self, x, t, kind):
        waves = t[:, None] * torch.exp(torch.linspace(0, math.log(60), 8))
        h = self.first(x)
        mood = self.time(torch.cat([waves.sin(), waves.cos()], 1)) + self.kind(kind)
        for block in self.blocks:
            h = h + block(h + mood[:, :, None, None])
        return self.last(h)


class Average:
    def __init__(self, net, most):
        self.net, self.most, self.count = copy.deepcopy(net).eval().requires_grad_(False), most, 0

    @torch.no_grad()
    def update(self, net):
        self.count += 1
        decay = min(self.most, (1 + self.count) / (10 + self.count))
        for slow, fast in zip(self.net.parameters(), net.parameters()):
            slow.mul_(decay).add_(fast, alpha=1 - decay)


def signal(t):
    return torch.cos(t * math.pi / 2), torch.sin(t * math.pi / 2)


def loss_of(net, x, kind, args):
    t = torch.rand(len(x)) * 0.98 + 0.01
    a, s = (part[:, None, None, None] for part in signal(t))
    noise = torch.randn_like(x)
    kind = torch.where(torch.rand(len(x)) < args.drop, KINDS, kind)
    v = net(a * x + s * noise, t, kind)
    weight = ((a / s).square().clamp(max=5.0) / ((a / s).square() + 1)).flatten()
    return (weight * (v - (a * noise - s * x)).square().mean((1, 2, 3))).mean()


@torch.no_grad()
def paint(net, kinds, args):
    gen = torch.Generator().manual_seed(99)
    x = torch.randn(len(kinds), 1, SIZE, SIZE, generator=gen)
    nothing = torch.full_like(kinds, KINDS)
    times = torch.linspace(0.99, 0.01, args.paint_steps + 1)
    for now, then in zip(times, times[1:]):
        t = now.expand(len(x))
        with_kind, without = net(x, t, kinds), net(x, t, nothing)
        v = without + args.guidance * (with_kind - without)
        (a, s), (b, r) = signal(now), signal(then)
        clean, noise = (a * x - s * v).clamp(-1.2, 1.2), s * x + a * v
        x = b * clean + r * noise
    return x


@torch.no_grad()
def judge(net, loader, args):
    state = torch.get_rng_state()
    torch.manual_seed(5)
    total, count = 0.0, 0
    for x, kind in loader:
        total += loss_of(net, x, kind, args).item() * len(x)
        count += len(x)
    torch.set_rng_state(state)
    return total / count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=7)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--drop", type=float, default=0.15)
    parser.add_argument("--decay", type=float, default=0.97)
    parser.add_argument("--guidance", type=float, default=2.0)
    parser.add_argument("--paint-steps", type=int, default=8)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    loader = DataLoader(TensorDataset(*pictures(480, 1)), args.batch, shuffle=True, drop_last=True)
    held = DataLoader(TensorDataset(*pictures(150, 2)), 60)
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=args.lr, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1.0, (n + 1) / 20))
    average = Average(net, args.decay)
    best = math.inf
    for epoch in range(args.epochs):
        net.train()
        total = 0.0
        for x, kind in loader:
            loss = loss_of(net, x, kind, args)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), args.clip)
            optimizer.step()
            scheduler.step()
            average.update(net)
            total += loss.item()
        found = judge(average.net, held, args)
        print(f"epoch {epoch + 1} loss {total / len(loader):.4f} held {found:.4f}")
        if found < best:
            best = found
            torch.save({"net": net.state_dict(), "average": average.net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, "painter.pt")
    kinds = torch.arange(30) % KINDS
    painted = paint(average.net, kinds, args)
    print(f"best {best:.4f} painted mean {painted.mean():.4f} spread {painted.std():.4f}")


if __name__ == "__main__":
    main()
