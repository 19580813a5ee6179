import math

import numpy as np
import torch
from torch.utils.data import Dataset


class EcgBeats(Dataset):
    """synthetic 2-lead records, 4 rhythm classes (used for kNN probing only)"""

    def __init__(self, n, length=200, seed=0):
        rng = np.random.RandomState(seed)
        t = np.arange(length)
        self.y = rng.randint(0, 4, n)
        self.x = np.zeros((n, 2, length))
        for i, c in enumerate(self.y):
            period = [40, 25, 40, 32][c] * (1 + 0.05 * rng.randn())
            phase = rng.rand() * period
            for k in range(-1, int(length / period) + 2):
                ctr = phase + k * period + (rng.randn() * (6 if c == 3 else 0.8))
                width = 4.5 if c == 2 else 1.8
                qrs = np.exp(-((t - ctr) / width) ** 2)
                twave = 0.3 * np.exp(-((t - ctr - 11) / 5.) ** 2)
                self.x[i, 0] += qrs + twave
                self.x[i, 1] += -0.6 * qrs + twave * (1.5 if c == 2 else 1)
            self.x[i] += 0.05 * rng.randn(2, length)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return torch.from_numpy(self.x[i]).float(), int(self.y[i])


def cosine_lr(base, step, total):
    return base * 0.5 * (1 + math.cos(math.pi * step / total))
