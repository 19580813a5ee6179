import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Rings(Dataset):
    """Grey pictures of one ring; the class is the number of gaps in it (0..3)."""

    def __init__(self, n, size, seed):
        rng = np.random.default_rng(seed)
        yy, xx = np.mgrid[0:size, 0:size] - (size - 1) / 2
        ang = np.arctan2(yy, xx)
        rad = np.hypot(yy, xx)
        self.labels = rng.integers(0, 4, n)
        self.images = np.empty((n, size, size), np.float32)
        for i, c in enumerate(self.labels):
            r = rng.uniform(size * 0.25, size * 0.42)
            img = np.exp(-((rad - r) ** 2) / 2.0)
            if c:
                img = img * (np.cos(c * (ang - rng.uniform(0, 6.28))) < 0.7)
            self.images[i] = img * 2 - 1

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        x = torch.from_numpy(self.images[i]).unsqueeze(0)
        if torch.rand(1).item() < 0.5:          # mirror
            x = x.flip(-1)
        return x, int(self.labels[i])


def make_loader(cfg):
    ds = Rings(cfg.data.n, cfg.data.size, cfg.seed)
    return DataLoader(ds, batch_size=cfg.data.batch_size, shuffle=True, drop_last=True, num_workers=0)
