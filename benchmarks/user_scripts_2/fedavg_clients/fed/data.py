import numpy as np
import torch
from torch.utils.data import Dataset


def ecg(label, r):
    t = np.arange(96)
    beat = 16 + 3 * label
    x = np.zeros(96)
    for c in range(int(r.randint(0, beat)), 96, beat):
        x += np.exp(-(t - c) ** 2 / 3.) - .3 * np.exp(-(t - c - 4) ** 2 / 8.)
        if label == 3:
            x += .5 * np.exp(-(t - c - 7) ** 2 / 2.)
    return x + r.normal(0, .15, 96)


class Hospital(Dataset):
    """one client's own records; every hospital has other gain and offset (feature shift)"""

    def __init__(self, x, y, gain, offset):
        self.x, self.y, self.gain, self.offset = x, y, gain, offset
        self.reads = 0

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        self.reads += 1
        x = self.x[i] * self.gain + self.offset
        x = np.roll(x, np.random.randint(-3, 4))
        return torch.tensor(x, dtype=torch.float32).unsqueeze(0), self.y[i]


def partition(n, clients, alpha, seed):
    """label skew by a Dirichlet distribution"""
    r = np.random.RandomState(seed)
    y = r.randint(0, 4, n)
    x = np.stack([ecg(k, r) for k in y])
    owner = np.empty(n, int)
    for k in range(4):
        p = r.dirichlet([alpha] * clients)
        owner[y == k] = r.choice(clients, (y == k).sum(), p=p)
    owner[:3 * clients] = np.arange(3 * clients) % clients        # nobody is empty
    out = [Hospital(x[owner == c], y[owner == c], r.uniform(.6, 1.4), r.normal(0, .2)) for c in range(clients)]
    yt = r.randint(0, 4, 160)
    xt = np.stack([ecg(k, r) for k in yt])
    return out, (torch.tensor(xt, dtype=torch.float32).unsqueeze(1), torch.tensor(yt))
