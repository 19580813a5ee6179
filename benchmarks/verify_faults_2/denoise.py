"""Diffusion on short curves: random times and noise for every sample, a weighted loss, warm-up, validation with fixed noise, JSON lines."""

import json
import math

import torch
from torch import nn

torch.manual_seed(37)
TIMES = 50


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Embedding(TIMES, 16)
        self.enter = nn.Linear(24, 48)
        self.norm = nn.LayerNorm(48)
        self.middle = nn.Linear(48 + 16, 48)
        self.leave = nn.Linear(48, 24)

    def forward(self, x, t):
        h = torch.nn.functional.silu(self.norm(self.enter(x)))
        h = torch.nn.functional.silu(self.middle(torch.cat([h, self.time(t)], 1)))
        return self.leave(h)


def curves(count, seed):
    generator = torch.Generator().manual_seed(seed)
    phase = 6.28 * torch.rand(count, 1, generator=generator)
    pace = 0.2 + 0.5 * torch.rand(count, 1, generator=generator)
    return torch.sin(phase + pace * torch.arange(24.0))


def noised(x, t, noise, keep):
    share = keep[t][:, None]
    return share.sqrt() * x + (1 - share).sqrt() * noise


def main():
    x, valid = curves(256, 0), curves(64, 1)
    keep = torch.cumprod(1 - torch.linspace(1e-3, 0.15, TIMES), 0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1, (s + 1) / 8) * 0.5 * (1 + math.cos(math.pi * min(1, s / 80))))
    generator = torch.Generator().manual_seed(3)
    fixed_t = torch.randint(0, TIMES, (64,), generator=generator)
    fixed_noise = torch.randn(64, 24, generator=generator)
    best = math.inf
    with open("log.jsonl", "w") as log:
        for epoch in range(5):
            model.train()
            total = 0.0
            for rows in torch.randperm(256).split(16):
                t = torch.randint(0, TIMES, (len(rows),))
                noise = torch.randn(len(rows), 24)
                guess = model(noised(x[rows], t, noise, keep), t)
                weight = (keep[t] / (1 - keep[t])).clamp(max=5.0)
                loss = (weight * (guess - noise).pow(2).mean(1)).mean() / weight.mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                total += loss.item()
            model.eval()
            with torch.no_grad():
                value = (model(noised(valid, fixed_t, fixed_noise, keep), fixed_t) - fixed_noise).pow(2).mean().item()
            log.write(json.dumps({"epoch": epoch, "train": total / 16, "valid": value}) + "\n")
            if value < best:
                best = value
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, "best.pt")


main()
