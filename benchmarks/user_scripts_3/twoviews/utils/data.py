# -*- coding: utf-8 -*-
import numpy as np
import torch
from torch.utils.data import Dataset


def make_images(n, size, classes, seed):
    rs = np.random.RandomState(seed)
    y = rs.randint(0, classes, n)
    yy, xx = np.mgrid[0:size, 0:size] / size
    out = np.zeros((n, 3, size, size), np.float32)
    for k in range(n):
        f = 2 + 2 * y[k]
        th = rs.rand() * 0.6 + (y[k] % 2) * 1.57
        tex = np.sin(6.28 * f * (np.cos(th) * xx + np.sin(th) * yy) + rs.rand() * 6.28)
        out[k] = 0.5 + 0.3 * tex * rs.rand(3, 1, 1) + 0.05 * rs.randn(3, size, size)
    return torch.from_numpy(out), torch.from_numpy(y)


class Views(Dataset):
    def __init__(self, x, y, t):
        self.x, self.y, self.t = x, y, t

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        a, b = self.t(self.x[i])
        return a, b, i
