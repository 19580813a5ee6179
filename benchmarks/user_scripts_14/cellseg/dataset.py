"""Crops from the phase-contrast stacks. One .npz per field of view:
   image  uint16 (H, W)      raw camera counts
   label  uint8  (H, W)      0 background, 1 cell, 2 contact line between cells
"""
import glob
import os
import random

import numpy as np
import torch
from torch.utils.data import Dataset


def phantom(rng, size, n_cells):
    """Stand-in for our own stacks (they cannot be shared)."""
    yy, xx = np.mgrid[0:size, 0:size].astype(np.float32)
    owner = np.zeros((size, size), np.int32)
    best = np.full((size, size), 1.0, np.float32)
    img = np.full((size, size), 900.0, np.float32)
    for i in range(1, n_cells + 1):
        cy, cx = rng.uniform(0, size, 2)
        a, b = rng.uniform(size / 24.0, size / 11.0, 2)
        t = rng.uniform(0, np.pi)
        u = (xx - cx) * np.cos(t) + (yy - cy) * np.sin(t)
        v = -(xx - cx) * np.sin(t) + (yy - cy) * np.cos(t)
        r = (u / a) ** 2 + (v / b) ** 2
        inside = r < best
        owner[inside] = i
        best[inside] = r[inside]
        img[inside] = 1500 + 500 * (1 - r[inside]) + rng.uniform(-150, 150)
    lab = (owner > 0).astype(np.uint8)
    for dy, dx in ((0, 1), (1, 0)):
        other = np.roll(owner, (dy, dx), (0, 1))
        lab[(owner > 0) & (other > 0) & (owner != other)] = 2
    img += rng.normal(0, 60, img.shape)
    return np.clip(img, 0, 65535).astype(np.uint16), lab


def make_stacks(root, n_train, n_val, size, n_cells):
    rng = np.random.RandomState(7)
    for part, n in (('train', n_train), ('val', n_val)):
        d = os.path.join(root, part)
        if os.path.isdir(d) and len(os.listdir(d)) >= n:
            continue
        os.makedirs(d, exist_ok=True)
        for i in range(n):
            img, lab = phantom(rng, size, n_cells)
            np.savez_compressed(os.path.join(d, 'fov_%04d.npz' % i), image=img, label=lab)


def box_blur(a, r):
    k = 2 * r + 1
    p = np.pad(a, ((r + 1, r), (r + 1, r)), mode='edge')
    c = p.cumsum(0).cumsum(1)
    return (c[k:, k:] - c[:-k, k:] - c[k:, :-k] + c[:-k, :-k]) / float(k * k)


def contact_weights(lab, w0=10.0, radius=5):
    """Heavier loss around the thin lines between touching cells."""
    line = (lab == 2).astype(np.float64)
    for _ in range(3):
        line = box_blur(line, radius)
    return (1.0 + w0 * line / max(line.max(), 1e-6)).astype(np.float32)


def bilinear(a, y, x):
    h, w = a.shape
    y = np.clip(y, 0, h - 1.001)
    x = np.clip(x, 0, w - 1.001)
    y0 = y.astype(np.int64)
    x0 = x.astype(np.int64)
    fy = y - y0
    fx = x - x0
    return (a[y0, x0] * (1 - fy) * (1 - fx) + a[y0, x0 + 1] * (1 - fy) * fx
            + a[y0 + 1, x0] * fy * (1 - fx) + a[y0 + 1, x0 + 1] * fy * fx)


def elastic(img, lab, wgt, sigma, rng):
    """Random displacements on a coarse 4x4 grid, as in the U-Net paper."""
    n = img.shape[0]
    yy, xx = np.mgrid[0:n, 0:n].astype(np.float64)
    gy = yy / (n - 1) * 3
    gx = xx / (n - 1) * 3
    y = yy + bilinear(rng.randn(4, 4) * sigma, gy, gx)
    x = xx + bilinear(rng.randn(4, 4) * sigma, gy, gx)
    yi = np.clip(np.rint(y), 0, n - 1).astype(np.int64)
    xi = np.clip(np.rint(x), 0, n - 1).astype(np.int64)
    return bilinear(img, y, x), lab[yi, xi], wgt[yi, xi]


class CellCrops(Dataset):
    def __init__(self, root, crop, sigma=10.0, crops_per_image=4):
        self.files = sorted(glob.glob(os.path.join(root, 'train', '*.npz')))
        self.crop = crop
        self.sigma = sigma
        self.crops_per_image = crops_per_image

    def __len__(self):
        return len(self.files) * self.crops_per_image

    def __getitem__(self, i):
        f = np.load(self.files[i // self.crops_per_image])
        img = f['image'].astype(np.float64)
        lab = f['label']
        img = (img - img.mean()) / img.std()
        wgt = contact_weights(lab)

        c = self.crop
        y = random.randint(0, img.shape[0] - c)
        x = random.randint(0, img.shape[1] - c)
        img, lab, wgt = [a[y:y + c, x:x + c] for a in (img, lab, wgt)]

        rng = np.random.RandomState(random.randint(0, 2 ** 31 - 1))
        img, lab, wgt = elastic(img, lab, wgt, self.sigma, rng)
        k = random.randint(0, 3)
        img, lab, wgt = [np.rot90(a, k) for a in (img, lab, wgt)]
        if random.random() < 0.5:
            img, lab, wgt = [np.fliplr(a) for a in (img, lab, wgt)]
        img = img * random.uniform(0.8, 1.25) + random.uniform(-0.2, 0.2)

        return (torch.from_numpy(img.copy()).float().unsqueeze(0),
                torch.from_numpy(lab.copy()).long(),
                torch.from_numpy(wgt.copy()))


class WholeFields(Dataset):
    """Validation: whole fields, kept in memory (there are few)."""

    def __init__(self, root):
        self.items = []
        for name in sorted(glob.glob(os.path.join(root, 'val', '*.npz'))):
            f = np.load(name)
            img = f['image'].astype(np.float32)
            self.items.append(((img - img.mean()) / img.std(), f['label']))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        img, lab = self.items[i]
        return torch.from_numpy(img).unsqueeze(0), torch.from_numpy(lab).long()
