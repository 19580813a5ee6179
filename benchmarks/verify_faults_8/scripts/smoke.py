# DDPM on small pictures of rings and crosses, with an EMA of the weights and guidance.
import copy
import json
import math
import os

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

T = 80
SIZE = 12
STEPS = 200
BATCH = 32
EMA_DECAY = 0.98
OUT = "smoke_out"


def make_pictures(count):
    yy, xx = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    g = torch.Generator().manual_seed(11)
    pics, labels = [], []
    for i in range(count):
        cx, cy = (torch.rand(2, generator=g) * 4 + 4).tolist()
        r = 2.0 + 1.5 * torch.rand((), generator=g).item()
        if i % 2:
            d = ((xx - cx) ** 2 + (yy - cy) ** 2).float().sqrt()
            p = torch.exp(-((d - r) ** 2))
        else:
            p = torch.maximum(torch.exp(-((xx - cx) ** 2).float()), torch.exp(-((yy - cy) ** 2).float()))
        pics.append(p * 2 - 1)
        labels.append(i % 2)
    return torch.stack(pics)[:, None], torch.tensor(labels)


class Denoiser(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.width = width
        self.kind = nn.Embedding(3, width)
        self.time = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.inp = nn.Conv2d(1, width, 3, padding=1)
        self.a = nn.Conv2d(width, width, 3, padding=1)
        self.b = nn.Conv2d(width, width, 3, padding=2, dilation=2)
        self.na, self.nb = nn.GroupNorm(4, width), nn.GroupNorm(4, width)
        self.drop = nn.Dropout2d(0.1)
        self.out = nn.Conv2d(width, 1, 3, padding=1)

    def embed(self, t):
        half = self.width // 2
        f = torch.exp(-math.log(1000) * torch.arange(half) / half)
        a = t[:, None].float() * f[None]
        return torch.cat([a.sin(), a.cos()], dim=1)

    def forward(self, x, t, y):
        e = (self.time(self.embed(t)) + self.kind(y))[:, :, None, None]
        h = self.inp(x)
        h = h + self.drop(F.silu(self.a(F.silu(self.na(h + e)))))
        h = h + F.silu(self.b(F.silu(self.nb(h + e))))
        return self.out(h)


class EMA:
    def __init__(self, model, decay):
        self.decay = decay
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self.n = 0

    @torch.no_grad()
    def update(self, model):
        self.n += 1
        d = min(self.decay, (1 + self.n) / (10 + self.n))
        for e, p in zip(self.model.parameters(), model.parameters()):
            e.mul_(d).add_(p, alpha=1 - d)


betas = torch.linspace(1e-3, 0.08, T)
alphas = 1.0 - betas
abar = torch.cumprod(alphas, dim=0)


def q_sample(x0, t, noise):
    a = abar[t].view(-1, 1, 1, 1)
    return a.sqrt() * x0 + (1 - a).sqrt() * noise


@torch.no_grad()
def validate(net, x, y):
    g = torch.Generator().manual_seed(5)
    total, count = 0.0, 0
    for i in range(0, len(x), 40):
        xb, yb = x[i : i + 40], y[i : i + 40]
        t = torch.randint(0, T, (len(xb),), generator=g)
        noise = torch.randn(xb.shape, generator=g)
        loss = F.mse_loss(net(q_sample(xb, t, noise), t, yb), noise)
        total += loss.item() * len(xb)
        count += len(xb)
    return total / count


@torch.no_grad()
def sample(net, y, scale=1.5):
    x = torch.randn(len(y), 1, SIZE, SIZE)
    for step in reversed(range(T)):
        t = torch.full((len(y),), step)
        cond = net(x, t, y)
        free = net(x, t, torch.full_like(y, 2))
        eps = free + scale * (cond - free)
        mean = (x - betas[step] / (1 - abar[step]).sqrt() * eps) / alphas[step].sqrt()
        x = mean + (betas[step].sqrt() * torch.randn_like(x) if step > 0 else 0)
    return x.clamp(-1, 1)


if __name__ == "__main__":
    os.makedirs(OUT, exist_ok=True)
    pics, labels = make_pictures(600)
    train = TensorDataset(pics[:500], labels[:500])
    loader = DataLoader(train, batch_size=BATCH, shuffle=True, drop_last=True)
    net = Denoiser()
    ema = EMA(net, EMA_DECAY)
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    warm = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 30))
    history = []
    step, running = 0, 0.0
    while step < STEPS:
        for x, y in loader:
            y = torch.where(torch.rand(len(y)) < 0.15, torch.full_like(y, 2), y)
            t = torch.randint(0, T, (len(x),))
            noise = torch.randn_like(x)
            pred = net(q_sample(x, t, noise), t, y)
            loss = F.mse_loss(pred, noise)
            opt.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            warm.step()
            ema.update(net)
            running += loss.item()
            step += 1
            if step % 50 == 0:
                val = validate(ema.model, pics[500:], labels[500:])
                print(f"[{step}/{STEPS}] loss={running / 50:.4f} ema_val={val:.4f} lr={warm.get_last_lr()[0]:.5f}")
                history.append({"step": step, "loss": running / 50, "val": val})
                running = 0.0
            if step == STEPS:
                break
    made = sample(ema.model, torch.arange(24) % 2)
    print(f"samples: mean {made.mean():.4f} std {made.std():.4f} bright {(made > 0).float().mean():.4f}")
    torch.save({"net": net.state_dict(), "ema": ema.model.state_dict(), "opt": opt.state_dict()}, f"{OUT}/last.pt")
    with open(f"{OUT}/history.json", "w") as f:
        json.dump(history, f)
