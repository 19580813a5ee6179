import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from pl_compat import LightningDataModule


def phantom(rng, size, n_classes):
    """CT-like cube with ellipsoid organs"""
    z, y, x = np.meshgrid(*[np.arange(size)] * 3, indexing="ij")
    vol = rng.normal(-80, 25, (size,) * 3).astype(np.float32)
    lab = np.zeros((size,) * 3, np.uint8)
    for c in range(1, n_classes):
        for _ in range(2):
            o = rng.integers(size // 5, size - size // 5, 3)
            r = rng.uniform(size * .06, size * .16, 3)
            m = ((z - o[0]) / r[0]) ** 2 + ((y - o[1]) / r[1]) ** 2 + ((x - o[2]) / r[2]) ** 2 < 1
            vol[m] = 60 * c + rng.normal(0, 20, m.sum())
            lab[m] = c
    return vol, lab


class OrganDataset(Dataset):
    def __init__(self, cases, patch, n_classes, train, samples=4):
        self.cases, self.patch, self.n_classes, self.train, self.samples = cases, patch, n_classes, train, samples

    def __len__(self):
        return len(self.cases) * self.samples if self.train else len(self.cases)

    def normalise(self, vol):
        lo, hi = np.percentile(vol, [0.5, 99.5])
        v = np.clip(vol, lo, hi)
        return (v - v.mean()) / (v.std() + 1e-8)

    def __getitem__(self, idx):
        vol, lab = self.cases[idx % len(self.cases)]
        vol = self.normalise(vol)
        if not self.train:
            return {"image": torch.from_numpy(vol[None].astype(np.float32)), "label": torch.from_numpy(lab.astype(np.int64))}
        p = self.patch
        if np.random.rand() < 0.66:
            fg = np.argwhere(lab > 0)
            centre = fg[np.random.randint(len(fg))]
        else:
            centre = np.array([np.random.randint(0, s) for s in lab.shape])
        start = [int(np.clip(c - p // 2, 0, s - p)) for c, s in zip(centre, lab.shape)]
        sl = tuple(slice(a, a + p) for a in start)
        v, l = vol[sl].copy(), lab[sl].copy()
        for ax in range(3):
            if np.random.rand() < 0.5:
                v, l = np.flip(v, ax), np.flip(l, ax)
        if np.random.rand() < 0.3:
            g = np.random.uniform(0.7, 1.5)
            mn, rg = v.min(), v.max() - v.min() + 1e-7
            v = ((v - mn) / rg) ** g * rg + mn
        if np.random.rand() < 0.15:
            v = v + np.random.normal(0, np.random.uniform(0, 0.1), v.shape)
        onehot = np.eye(self.n_classes)[l]
        return {"image": torch.from_numpy(np.ascontiguousarray(v)[None].astype(np.float32)),
                "target": torch.from_numpy(np.ascontiguousarray(onehot.transpose(3, 0, 1, 2)))}


class OrganDataModule(LightningDataModule):
    def __init__(self, hp):
        super().__init__()
        self.hp = hp
        rng = np.random.default_rng(hp.seed)
        cases = [phantom(rng, hp.volume, hp.classes) for _ in range(hp.cases)]
        n_val = max(1, hp.cases // 5)
        self.train_cases, self.val_cases = cases[n_val:], cases[:n_val]

    def prepare_data(self):
        pass

    def setup(self, stage=None):
        pass

    def train_dataloader(self):
        ds = OrganDataset(self.train_cases, self.hp.patch, self.hp.classes, True)
        return DataLoader(ds, batch_size=self.hp.batch_size, shuffle=True, num_workers=self.hp.num_workers, drop_last=True)

    def val_dataloader(self):
        return DataLoader(OrganDataset(self.val_cases, self.hp.patch, self.hp.classes, False), batch_size=1, num_workers=self.hp.num_workers)
