"""An energy for points of two moons and a ring: persistent chains, noisy descent, an average of the weights that is judged."""
import copy
import math

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CHAINS, STEPS, FRESH = 600, 20, 0.05
WIDE = 2.5


def points(count, seed):
    g = torch.Generator().manual_seed(seed)
    turn = torch.rand(count, generator=g) * math.pi
    which = torch.randint(3, (count,), generator=g)
    upper = torch.stack([turn.cos() - 0.5, turn.sin() - 0.2], 1)
    lower = torch.stack([0.5 - turn.cos(), 0.2 - turn.sin()], 1)
    ring = 2.0 * torch.stack([(2 * turn).cos(), (2 * turn).sin()], 1)
    x = torch.where((which == 0)[:, None], upper, torch.where((which == 1)[:, None], lower, ring))
    return x + 0.07 * torch.randn(count, 2, generator=g)


class Energy(nn.Module):
    def __init__(self, width=80):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))

    def forward(self, x):
        return self.body(x).squeeze(-1)


def anywhere(count):
    return (torch.rand(count, 2) * 2 - 1) * WIDE


def descend(net, x, steps, size=0.03):
    """Noisy descent of the energy."""
    for _ in range(steps):
        x = x.detach().requires_grad_(True)
        slope, = torch.autograd.grad(net(x).sum(), x)
        slope = slope.clamp(-5.0, 5.0)
        x = x - size * slope + math.sqrt(2 * size) * 0.15 * torch.randn_like(x)
        x = x.clamp(-WIDE, WIDE)
    return x.detach()


class Chains:
    def __init__(self, count):
        self.kept = anywhere(count)

    def sample(self, net, count):
        rows = torch.randperm(len(self.kept))[:count]
        start = self.kept[rows]
        fresh = torch.rand(count) < FRESH
        start = torch.where(fresh[:, None], anywhere(count), start)
        x = descend(net, start, STEPS)
        self.kept[rows] = x
        return x


def judge(net, held, far):
    """How often a held point lies lower than one from anywhere, and the held energy above the mean of the far."""
    total, won, count = 0.0, 0.0, 0
    with torch.no_grad():
        level = net(far)
        for x, in held:
            e = net(x)
            won += (e[:, None] < level[None]).float().mean(1).sum().item()
            total += (e - level.mean()).sum().item()
            count += len(x)
    return won / count, total / count


def main():
    torch.manual_seed(3)
    train = DataLoader(TensorDataset(points(2000, 1)), 96, shuffle=True, generator=torch.Generator().manual_seed(8))
    held = DataLoader(TensorDataset(points(400, 2)), 150)
    far = (torch.rand(500, 2, generator=torch.Generator().manual_seed(9)) * 2 - 1) * WIDE
    net = Energy()
    slow = copy.deepcopy(net)
    chains = Chains(CHAINS)
    optimizer = torch.optim.Adam(net.parameters(), lr=4e-3, betas=(0.5, 0.99))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 6, gamma=0.5)
    best = 0.0
    for epoch in range(18):
        gap, size, count = 0.0, 0.0, 0
        for x, in train:
            x = x + 0.02 * torch.randn_like(x)
            made = chains.sample(net, len(x))
            low, high = net(x), net(made)
            flat = (low**2).mean() + (high**2).mean()
            loss = low.mean() - high.mean() + 0.02 * flat
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            with torch.no_grad():
                for s, p in zip(slow.parameters(), net.parameters()):
                    s.mul_(0.97).add_(p, alpha=0.03)
            gap += (low.mean() - high.mean()).item() * len(x)
            size += flat.item() * len(x)
            count += len(x)
        scheduler.step()
        won, above = judge(slow, held, far)
        print(f"epoch {epoch + 1} gap {gap / count:.4f} size {size / count:.4f} won {won:.4f} above {above:.4f}")
        if won > best:
            best = won
            torch.save({"net": slow.state_dict(), "epoch": epoch}, "best.pt")
    slow.load_state_dict(torch.load("best.pt")["net"])
    ends = descend(slow, anywhere(300), 60)
    away = torch.cdist(ends, points(400, 2)).min(1).values
    print(f"best {best:.4f} samples lie {away.mean().item():.4f} away, {(away < 0.2).float().mean().item():.4f} near")
    torch.save({"net": net.state_dict(), "slow": slow.state_dict(), "chains": chains.kept}, "last.pt")


if __name__ == "__main__":
    main()
