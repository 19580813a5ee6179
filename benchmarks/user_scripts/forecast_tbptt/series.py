import numpy as np
import torch
from torch.utils.data import Dataset, Sampler


def make_series(n_series=24, length=420, seed=0):
    r = np.random.RandomState(seed)
    t = np.arange(length)
    out = []
    for _ in range(n_series):
        level, amp, ph = r.uniform(5, 50), r.uniform(1, 6), r.uniform(0, 6.28)
        y = level + amp * np.sin(2 * np.pi * t / 24 + ph) + 0.5 * amp * np.sin(2 * np.pi * t / 168 + ph)
        y += np.cumsum(r.randn(length) * 0.05) + r.randn(length) * 0.3
        out.append(y)
    return torch.tensor(np.array(out), dtype=torch.float32)


class Windows(Dataset):
    """windows are views (unfold) of ONE tensor: neighbours share memory"""

    def __init__(self, data, context, stride):
        self.data = data
        self.win = data.unfold(1, context + 1, stride)      # (series, n, context+1), no copy
        self.n_win = self.win.size(1)

    def __len__(self):
        return self.win.size(0) * self.n_win

    def __getitem__(self, i):
        s, k = divmod(i, self.n_win)
        return self.win[s, k], s, k


class Streams(Sampler):
    """batch b = window k of all the series of one group, k ascending, so that the hidden state can be
    carried from batch to batch. Remembers the group order between epochs."""

    def __init__(self, ds, group, seed):
        self.ds, self.group = ds, group
        self.rs = np.random.RandomState(seed)
        self.order = list(range(ds.win.size(0)))

    def __iter__(self):
        self.rs.shuffle(self.order)
        for g in range(0, len(self.order), self.group):
            members = self.order[g:g + self.group]
            for k in range(self.ds.n_win):
                yield [s * self.ds.n_win + k for s in members]

    def __len__(self):
        return -(-len(self.order) // self.group) * self.ds.n_win
