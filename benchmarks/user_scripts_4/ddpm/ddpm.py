from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


@dataclass
class OptimConfig:
    lr: float = 2e-3
    clip: float = 1.0
    ema_decay: float = 0.995
    ema_start: int = 20


@dataclass
class Config:
    size: int = 16
    dim: int = 32
    timesteps: int = 200
    batch: int = 32
    steps: int = 150
    sample_steps: int = 40
    log_every: int = 50
    seed: int = 0
    device: str = "cuda" if torch.cuda.is_available() else "cpu"
    optim: OptimConfig = field(default_factory=OptimConfig)


class Rings(Dataset):
    """Random rings, generated once."""

    def __init__(self, n: int, size: int, seed: int):
        rng = np.random.default_rng(seed)
        g = np.linspace(-1, 1, size)
        X, Y = np.meshgrid(g, g)
        self.imgs = []
        for _ in range(n):
            cx, cy, r = rng.uniform(-0.3, 0.3), rng.uniform(-0.3, 0.3), rng.uniform(0.3, 0.7)
            d = np.abs(np.sqrt((X - cx) ** 2 + (Y - cy) ** 2) - r)
            self.imgs.append((np.exp(-20 * d ** 2) * 255).astype(np.uint8))

    def __len__(self):
        return len(self.imgs)

    def __getitem__(self, i):
        x = torch.from_numpy(self.imgs[i]).float()[None] / 127.5 - 1
        return x.flip(-1) if torch.rand(()) < 0.5 else x


def timestep_embedding(t: torch.Tensor, dim: int) -> torch.Tensor:
    freqs = torch.exp(-math.log(10000) * torch.arange(dim // 2).float() / (dim // 2)).to(t.device)
    a = t.float()[:, None] * freqs[None]
    return torch.cat([a.sin(), a.cos()], -1)


class ResBlock(nn.Module):
    def __init__(self, cin, cout, temb):
        super().__init__()
        self.n1, self.c1 = nn.GroupNorm(8, cin), nn.Conv2d(cin, cout, 3, padding=1)
        self.n2, self.c2 = nn.GroupNorm(8, cout), nn.Conv2d(cout, cout, 3, padding=1)
        self.t = nn.Linear(temb, cout)
        self.skip = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, temb):
        h = self.c1(F.silu(self.n1(x)))
        h = h + self.t(F.silu(temb))[:, :, None, None]
        return self.c2(F.silu(self.n2(h))) + self.skip(x)


class Attn(nn.Module):
    def __init__(self, c, heads=4):
        super().__init__()
        self.h, self.norm = heads, nn.GroupNorm(8, c)
        self.qkv, self.out = nn.Conv2d(c, 3 * c, 1), nn.Conv2d(c, c, 1)

    def forward(self, x):
        b, c, hh, ww = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(b, 3, self.h, c // self.h, hh * ww).unbind(1)
        q = q * (c // self.h) ** -0.5
        sim = torch.einsum("bhdi,bhdj->bhij", q, k)
        sim = sim - sim.amax(dim=-1, keepdim=True).detach()
        attn = sim.softmax(-1)
        o = torch.einsum("bhij,bhdj->bhdi", attn, v)
        return x + self.out(o.reshape(b, c, hh, ww))


class UNet(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim
        t = dim * 4
        self.time = nn.Sequential(nn.Linear(dim, t), nn.SiLU(), nn.Linear(t, t))
        self.inp = nn.Conv2d(1, dim, 3, padding=1)
        self.d1, self.down = ResBlock(dim, dim, t), nn.Conv2d(dim, 2 * dim, 4, 2, 1)
        self.m1, self.attn, self.m2 = ResBlock(2 * dim, 2 * dim, t), Attn(2 * dim), ResBlock(2 * dim, 2 * dim, t)
        self.up = nn.ConvTranspose2d(2 * dim, dim, 4, 2, 1)
        self.u1, self.out = ResBlock(2 * dim, dim, t), nn.Conv2d(dim, 1, 3, padding=1)

    def forward(self, x, t):
        temb = self.time(timestep_embedding(t, self.dim))
        h1 = self.d1(self.inp(x), temb)
        h = self.m2(self.attn(self.m1(self.down(h1), temb)), temb)
        return self.out(self.u1(torch.cat([self.up(h), h1], 1), temb))


class Diffusion:
    def __init__(self, cfg: Config):
        self.T = cfg.timesteps
        self.betas = torch.linspace(1e-4, 0.05, self.T)
        self.abar = torch.cumprod(1 - self.betas, 0)

    def extract(self, a, t):
        return a[t.cpu()].to(t.device).view(-1, 1, 1, 1)

    def loss(self, model, x0):
        t = torch.randint(0, self.T, (x0.shape[0],)).to(x0.device)
        noise = torch.randn_like(x0)
        ab = self.extract(self.abar, t)
        xt = ab.sqrt() * x0 + (1 - ab).sqrt() * noise
        return F.mse_loss(model(xt, t), noise, reduction="none").mean((1, 2, 3)), t

    def ddim(self, model, shape, n, device):
        x = torch.randn(shape, device=device)
        steps = torch.linspace(self.T - 1, 0, n).long()
        for i, s in enumerate(steps):
            t = torch.full((shape[0],), int(s), device=device)
            eps = model(x, t)
            ab = self.extract(self.abar, t)
            nxt = self.abar[steps[i + 1]] if i + 1 < n else torch.tensor(1.0)
            x0 = ((x - (1 - ab).sqrt() * eps) / ab.sqrt()).clamp(-1, 1)
            x = nxt.to(device).sqrt() * x0 + (1 - nxt.to(device)).sqrt() * eps
        return x


class EMA:
    def __init__(self, model, decay, start):
        self.shadow = copy.deepcopy(model).eval()
        self.decay, self.start, self.n = decay, start, 0

    def update(self, model):
        self.n += 1
        if self.n < self.start:
            self.shadow.load_state_dict(model.state_dict())
            return
        for s, p in zip(self.shadow.parameters(), model.parameters()):
            s.data = s.data * self.decay + (1 - self.decay) * p.data


def cycle(dl):
    while True:
        yield from dl


def main(cfg: Config):
    torch.manual_seed(cfg.seed)
    dl = cycle(DataLoader(Rings(512, cfg.size, cfg.seed), cfg.batch, shuffle=True, drop_last=True))
    model, diff = UNet(cfg.dim).to(cfg.device), Diffusion(cfg)
    opt = torch.optim.Adam(model.parameters(), lr=cfg.optim.lr, betas=(0.9, 0.99))
    ema = EMA(model, cfg.optim.ema_decay, cfg.optim.ema_start)
    buckets = [[] for _ in range(4)]      # loss by noise level
    for step in range(1, cfg.steps + 1):
        losses, t = diff.loss(model, next(dl).to(cfg.device))
        loss = losses.mean()
        opt.zero_grad()
        loss.backward()
        gn = nn.utils.clip_grad_norm_(model.parameters(), cfg.optim.clip)
        opt.step()
        ema.update(model)
        for li, ti in zip(losses, t):
            buckets[int(ti) * 4 // cfg.timesteps].append(li.item())
        if step % cfg.log_every == 0:
            print(f"step {step} loss {loss.item():.4f} grad {gn.item():.3f} by level", [round(float(np.mean(b)), 4) for b in buckets])
            buckets = [[] for _ in range(4)]
    x = diff.ddim(ema.shadow, (8, 1, cfg.size, cfg.size), cfg.sample_steps, cfg.device)
    print("samples mean %.4f std %.4f" % (x.mean().item(), x.std().item()))


if __name__ == "__main__":
    main(Config())
