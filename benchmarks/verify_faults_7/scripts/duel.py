"""Two nets against each other on a ring of points: hinge loss, a penalty on the gradient now and then, a slow copy of the generator."""

import copy
import itertools

import torch
from torch import nn

Z = 6
STEPS = 90


def ring(n, generator):
    angle = torch.randint(0, 6, (n,), generator=generator) * (2 * torch.pi / 6)
    return torch.stack([angle.cos(), angle.sin()], 1) * 1.5 + 0.1 * torch.randn(n, 2, generator=generator)


def endless(points, size):
    while True:
        for rows in torch.randperm(len(points)).split(size):
            if len(rows) == size:
                yield points[rows]


def make_players():
    maker = nn.Sequential(nn.Linear(Z, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 2))
    judge = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Dropout(0.1), nn.Linear(32, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
    return maker, judge


def duel():
    torch.manual_seed(5)
    points = ring(500, torch.Generator().manual_seed(9))
    maker, judge = make_players()
    slow = copy.deepcopy(maker).requires_grad_(False)
    opt_maker = torch.optim.Adam(maker.parameters(), lr=2e-3, betas=(0.5, 0.99))
    opt_judge = torch.optim.Adam(judge.parameters(), lr=4e-3, betas=(0.5, 0.99))
    fall = [torch.optim.lr_scheduler.ExponentialLR(o, 0.99) for o in (opt_maker, opt_judge)]
    fixed = torch.randn(64, Z)
    sums = {"judge": 0.0, "maker": 0.0}

    def train_judge(real):
        with torch.no_grad():
            fake = maker(torch.randn(len(real), Z))
        loss = (1 - judge(real)).relu().mean() + (1 + judge(fake)).relu().mean()
        opt_judge.zero_grad()
        loss.backward()
        opt_judge.step()
        sums["judge"] += loss.item()

    def penalise(real):
        real = real.clone().requires_grad_(True)
        slope, = torch.autograd.grad(judge(real).sum(), real, create_graph=True)
        penalty = 2.0 * slope.pow(2).sum(1).mean()
        opt_judge.zero_grad()
        penalty.backward()
        opt_judge.step()

    def train_maker(size):
        judge.requires_grad_(False)
        loss = -judge(maker(torch.randn(size, Z))).mean()
        opt_maker.zero_grad()
        loss.backward()
        opt_maker.step()
        judge.requires_grad_(True)
        sums["maker"] += loss.item()

    def follow(keep):
        with torch.no_grad():
            for a, b in zip(slow.parameters(), maker.parameters()):
                a.mul_(keep).add_(b, alpha=1 - keep)
            for a, b in zip(slow.buffers(), maker.buffers()):
                a.copy_(b)

    batches = endless(points, 32)
    for step in itertools.count(1):
        for _ in range(2):
            train_judge(next(batches))
        if step % 4 == 0:
            penalise(next(batches))
        train_maker(32)
        follow(0.9)
        for f in fall:
            f.step()
        if step % 30 == 0:
            slow.eval()
            with torch.no_grad():
                made = slow(fixed)
            slow.train()
            spread = torch.cdist(made, points).min(1).values.mean()
            print("step", step, "judge %.4f maker %.4f" % (sums["judge"] / 60, sums["maker"] / 30), "distance %.4f" % spread.item())
            sums.update(judge=0.0, maker=0.0)
        if step == STEPS:
            break
    torch.save({"slow": slow.state_dict(), "maker": maker.state_dict(), "judge": judge.state_dict()}, "duel.pt")


duel()
