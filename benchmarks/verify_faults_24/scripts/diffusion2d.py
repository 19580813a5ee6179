"""Tiny DDPM on 2-D points (two interleaved spirals), min-SNR weighting, EMA weights for sampling."""
import argparse
import copy
import math
from pathlib import Path

import torch
import torch.nn as nn


def spirals(n, gen):
    u = torch.rand(n, generator=gen).sqrt() * 3 * math.pi
    arm = torch.randint(0, 2, (n,), generator=gen).float() * math.pi
    pts = torch.stack([u * torch.cos(u + arm), u * torch.sin(u + arm)], 1) / 5.0
    return pts + 0.04 * torch.randn(n, 2, generator=gen)


class Schedule:
    def __init__(self, steps):
        s = torch.linspace(0, 1, steps + 1)
        f = torch.cos((s + 0.008) / 1.008 * math.pi / 2) ** 2
        beta = (1 - f[1:] / f[:-1]).clamp(max=0.999)
        self.steps, self.beta, self.alpha = steps, beta, 1 - beta
        self.abar = torch.cumprod(self.alpha, 0)
        snr = self.abar / (1 - self.abar)
        self.weight = snr.clamp(max=5.0) / snr  # min-SNR for eps-prediction

    def add_noise(self, x0, t, noise):
        a = self.abar[t][:, None]
        return a.sqrt() * x0 + (1 - a).sqrt() * noise


class Denoiser(nn.Module):
    def __init__(self, width=96, steps=60):
        super().__init__()
        freqs = torch.exp(torch.linspace(0, 4, 12))
        self.register_buffer("freqs", freqs)
        self.inp = nn.Linear(2 + 24, width)
        self.mid = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, 2)
        self.steps = steps

    def forward(self, x, t):
        ang = (t.float() / self.steps)[:, None] * self.freqs
        h = torch.nn.functional.silu(self.inp(torch.cat([x, ang.sin(), ang.cos()], 1)))
        for layer in self.mid:
            h = h + torch.nn.functional.silu(layer(h))
        return self.out(h)


def update_ema(ema, model, decay):
    with torch.no_grad():
        for pe, pm in zip(ema.parameters(), model.parameters()):
            pe.mul_(decay).add_(pm, alpha=1 - decay)


@torch.no_grad()
def sample(model, sch, n):
    x = torch.randn(n, 2)
    for i in reversed(range(sch.steps)):
        t = torch.full((n,), i)
        eps = model(x, t)
        mean = (x - sch.beta[i] / (1 - sch.abar[i]).sqrt() * eps) / sch.alpha[i].sqrt()
        x = mean + (sch.beta[i].sqrt() * torch.randn_like(x) if i > 0 else 0)
    return x


def sliced_w2(a, b):
    th = torch.arange(32) / 32 * math.pi
    d = torch.stack([th.cos(), th.sin()])
    return ((a @ d).sort(0).values - (b @ d).sort(0).values).pow(2).mean().item()


@torch.no_grad()
def heldout_loss(model, sch, pts):
    g = torch.Generator().manual_seed(77)
    pts = pts.repeat(8, 1)
    t = torch.randint(0, sch.steps, (len(pts),), generator=g)
    noise = torch.randn(pts.shape, generator=g)
    se = (model(sch.add_noise(pts, t, noise), t) - noise).pow(2).mean(1)
    return (sch.weight[t] * se).mean().item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--iters", type=int, default=1500)
    p.add_argument("--batch", type=int, default=200)
    p.add_argument("--ema", type=float, default=0.995)
    p.add_argument("--seed", type=int, default=3)
    p.add_argument("--workdir", type=Path, default=Path("."))
    a = p.parse_args()
    torch.set_num_threads(1)
    data_gen = torch.Generator().manual_seed(11)
    train, held = spirals(1600, data_gen), spirals(1000, data_gen)

    torch.manual_seed(a.seed)
    sch = Schedule(60)
    model = Denoiser()
    ema = copy.deepcopy(model)
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    per_epoch = len(train) // a.batch
    window = 0.0
    for it in range(a.iters):
        if it % per_epoch == 0:
            order = torch.randperm(len(train))
        k = it % per_epoch
        x0 = train[order[k * a.batch:(k + 1) * a.batch]]
        t = torch.randint(0, sch.steps, (a.batch,))
        noise = torch.randn_like(x0)
        pred = model(sch.add_noise(x0, t, noise), t)
        loss = (sch.weight[t] * (pred - noise).pow(2).mean(1)).mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        update_ema(ema, model, a.ema if it >= 100 else 0.9)
        window += loss.item()
        if (it + 1) % 100 == 0:
            print(f"iter {it + 1} loss {window / 100:.5f}")
            window = 0.0
        if (it + 1) % 500 == 0:
            print(f"iter {it + 1} heldout {heldout_loss(ema, sch, held):.5f}")
    w2 = sliced_w2(sample(ema, sch, 1000), held)
    print(f"final heldout {heldout_loss(ema, sch, held):.5f} sliced_w2 {w2:.5f}")
    a.workdir.mkdir(parents=True, exist_ok=True)
    torch.save({"ema": ema.state_dict(), "model": model.state_dict()}, a.workdir / "ddpm2d.pt")


if __name__ == "__main__":
    main()
