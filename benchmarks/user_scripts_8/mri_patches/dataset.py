import glob
import os

import numpy as np
import torch
from torch.utils.data import Dataset


def generate(cfg, seed=0):
    os.makedirs(cfg['root'], exist_ok=True)
    if os.path.exists(os.path.join(cfg['root'], 'done')):
        return
    rng = np.random.RandomState(seed)
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, s) for s in cfg['shape']], indexing='ij'))
    for i in range(cfg['n_train'] + cfg['n_val']):
        brain = ((grid / rng.uniform(0.75, 0.95, (3, 1, 1, 1))) ** 2).sum(0) < 1
        seg = np.zeros(cfg['shape'], dtype=np.uint8)
        for _ in range(rng.randint(1, 4)):
            c, r = rng.uniform(-0.45, 0.45, (3, 1, 1, 1)), rng.uniform(0.15, 0.35)
            d = ((grid - c) ** 2).sum(0) ** 0.5
            seg[(d < r) & brain] = 1
            seg[(d < r * 0.55) & brain] = 2
        t1 = brain * (100 + 15 * grid[0]) - 25 * (seg == 1) - 45 * (seg == 2)
        flair = brain * 80 + 55 * (seg == 1) + 20 * (seg == 2)
        img = np.stack([t1, flair]) + rng.randn(2, *cfg['shape']) * 8
        np.savez_compressed(os.path.join(cfg['root'], 'case_%03d.npz' % i), img=img, seg=seg, brain=brain)
    open(os.path.join(cfg['root'], 'done'), 'w').close()


def zscore(img, brain):
    out = np.zeros_like(img)
    for c in range(img.shape[0]):
        vals = img[c][brain]
        lo, hi = np.percentile(vals, [0.5, 99.5])
        out[c] = (np.clip(img[c], lo, hi) - vals.mean()) / (vals.std() + 1e-8)
        out[c][~brain] = 0
    return out


class PatchDataset(Dataset):
    """Random patches, a share of them centred on a lesion voxel; flips, gamma, noise."""

    def __init__(self, files, cfg):
        self.files, self.cfg = files, cfg
        self.patch = np.array(cfg['patch'])

    def __len__(self):
        return self.cfg['patches_per_epoch']

    def __getitem__(self, idx):
        npz = np.load(self.files[np.random.randint(len(self.files))])
        img, seg = zscore(npz['img'], npz['brain']), npz['seg']
        limit = np.array(seg.shape) - self.patch
        if np.random.rand() < self.cfg['fg_ratio']:
            fg = np.argwhere(seg > 0)
            center = fg[np.random.randint(len(fg))]
            start = np.clip(center - self.patch // 2, 0, limit)
        else:
            start = np.array([np.random.randint(0, l + 1) for l in limit])
        sl = tuple(slice(s, s + p) for s, p in zip(start, self.patch))
        x, y = img[(slice(None),) + sl].copy(), seg[sl].copy()
        for ax in range(3):
            if np.random.rand() < 0.5:
                x, y = np.flip(x, ax + 1), np.flip(y, ax)
        if np.random.rand() < 0.3:
            mn, rng_ = x.min(), x.max() - x.min()
            x = np.power((x - mn) / (rng_ + 1e-7), np.random.uniform(0.7, 1.5)) * rng_ + mn
        x = x + np.random.randn(*x.shape) * np.random.uniform(0, 0.1)
        return torch.from_numpy(x.copy()), torch.from_numpy(y.copy()).long()


class VolumeDataset(Dataset):
    def __init__(self, files):
        self.files = files

    def __len__(self):
        return len(self.files)

    def __getitem__(self, idx):
        npz = np.load(self.files[idx])
        return torch.from_numpy(zscore(npz['img'], npz['brain'])), torch.from_numpy(npz['seg']).long()


def list_cases(cfg):
    files = sorted(glob.glob(os.path.join(cfg['root'], 'case_*.npz')))
    return files[:cfg['n_train']], files[cfg['n_train']:]
