import math

import torch
from torch import nn

from .settings import settings


class Noise:
    def __init__(self, levels):
        beta = torch.linspace(1e-3, 0.12, levels)
        self.levels = levels
        self.alive = torch.cumprod(1 - beta, 0)

    def spoil(self, clean):
        level = torch.randint(0, self.levels, (len(clean),))
        noise = torch.randn_like(clean)
        a = self.alive[level][:, None, None, None]
        return a.sqrt() * clean + (1 - a).sqrt() * noise, noise, level

    def weight(self, level):
        ratio = self.alive[level] / (1 - self.alive[level])
        return ratio.clamp(max=5.0) / ratio


class Cleaner(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(8, width), nn.SiLU(), nn.Linear(width, width))
        self.kind = nn.Embedding(3, width)
        self.first = nn.Conv2d(1, width, 3, padding=1)
        self.norm = nn.GroupNorm(4, width)
        self.middle = nn.Conv2d(width, width, 3, padding=1)
        self.drop = nn.Dropout(0.1)
        self.last = nn.Conv2d(width, 1, 3, padding=1)

    def forward(self, x, level, kind):
        turn = level[:, None] * torch.exp(-math.log(100.0) * torch.arange(4) / 4)
        told = self.time(torch.cat([turn.sin(), turn.cos()], 1)) + self.kind(kind)
        h = self.first(x) + told[:, :, None, None]
        return self.last(self.drop(torch.nn.functional.silu(self.middle(self.norm(h)))))


class Average:
    def __init__(self, model):
        self.shadow = {name: p.detach().clone() for name, p in model.named_parameters()}

    @torch.no_grad()
    def update(self, model):
        for name, p in model.named_parameters():
            self.shadow[name].lerp_(p, 1 - settings.keep)

    def swap(self, model):
        with torch.no_grad():
            for name, p in model.named_parameters():
                kept = p.clone()
                p.copy_(self.shadow[name])
                self.shadow[name] = kept
