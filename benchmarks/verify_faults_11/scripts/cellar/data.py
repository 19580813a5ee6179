import math

import torch

CHANNELS = 5
STAGES = 4


class Barrels:
    """Rows of sensors that run side by side; now and then a barrel is filled anew and its story starts over."""

    def __init__(self, rows, length, seed):
        gen = torch.Generator().manual_seed(seed)
        x = torch.zeros(rows, length, CHANNELS)
        y = torch.zeros(rows, length, dtype=torch.long)
        fresh = torch.zeros(rows, length, dtype=torch.bool)
        for r in range(rows):
            t = 0
            while t < length:
                total = int(torch.randint(60, 160, (), generator=gen))
                kind = int(torch.randint(0, 2, (), generator=gen))
                cuts = torch.rand(STAGES - 1, generator=gen) * 0.4 + torch.tensor([0.0, 0.25, 0.55])
                for k in range(min(total, length - t)):
                    part = k / total
                    stage = int((part > cuts).sum())
                    # the kind shows only at the beginning
                    sign = (1.5 if kind else -1.5) if k < 6 else 0.0
                    wave = math.sin(k * (0.3 + 0.2 * stage)) * (1 if kind else -1) if stage == 2 else math.sin(k * 0.3)
                    x[r, t + k] = torch.tensor([20 + 4 * part, 900 + 60 * wave, sign, 5 + (stage == 1) * 0.8, 0.02 * stage * (1 if kind else 0.2)])
                    y[r, t + k] = (stage + kind) % STAGES if stage >= 2 else stage
                fresh[r, t] = True
                t += total
        scale = torch.tensor([1.0, 40.0, 0.8, 0.6, 0.02])
        self.x = x + scale * torch.randn(x.shape, generator=gen)
        self.y, self.fresh = y, fresh

    def __len__(self):
        return self.x.shape[1]


class Normalizer:
    def __init__(self, x):
        self.mean, self.std = x.mean((0, 1)), x.std((0, 1))

    def __call__(self, x):
        return (x - self.mean) / self.std

    def state_dict(self):
        return {"mean": self.mean, "std": self.std}


def windows(total, typical, vary):
    """Starts and ends of pieces; their length is drawn anew where it may vary."""
    at = 0
    while at < total:
        size = typical
        if vary:
            base = typical if torch.rand(()) < 0.9 else typical / 2
            size = max(5, int(base + 3 * torch.randn(())))
        yield at, min(at + size, total)
        at += size
