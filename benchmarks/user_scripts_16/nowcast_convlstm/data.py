"""Storm events: one compressed npz per event with a `vil` array (T, H, W) uint8."""
import glob
import os
import random

import numpy as np
import torch
from torch.utils.data import Dataset


def make_events(root, n, frames, size, seed=0):
    os.makedirs(root, exist_ok=True)
    rng = np.random.RandomState(seed)
    yy, xx = np.mgrid[0:size, 0:size].astype(np.float32)
    for i in range(n):
        cells = rng.randint(3, 8)
        cx, cy = rng.rand(2, cells) * size
        vx, vy = rng.randn(2) * size / 64.0
        rad = (0.05 + 0.1 * rng.rand(cells)) * size
        amp = 80 + 170 * rng.rand(cells)
        growth = 1 + 0.03 * rng.randn(cells)
        seq = np.zeros((frames, size, size), np.uint8)
        for t in range(frames):
            img = np.zeros((size, size), np.float32)
            for c in range(cells):
                d2 = (xx - cx[c] - vx * t) ** 2 + (yy - cy[c] - vy * t) ** 2
                img += amp[c] * growth[c] ** t * np.exp(-d2 / (2 * rad[c] ** 2))
            img += rng.rand(size, size) * 6
            seq[t] = np.clip(img, 0, 255).astype(np.uint8)
        np.savez_compressed(os.path.join(root, "event_%06d.npz" % i), vil=seq)


class RadarSequences(Dataset):
    def __init__(self, files, n_in, n_out, augment=False):
        self.files = files
        self.n_in = n_in
        self.n_out = n_out
        self.augment = augment

    def __len__(self):
        return len(self.files)

    def __getitem__(self, idx):
        with np.load(self.files[idx]) as z:
            seq = z["vil"]
        total = self.n_in + self.n_out
        start = random.randint(0, len(seq) - total) if self.augment else 0
        seq = seq[start:start + total].astype(np.float32) / 255.0
        seq = torch.from_numpy(seq).unsqueeze(1)
        if self.augment:
            # storms have no preferred direction, whole sequence is moved together
            if random.random() < 0.5:
                seq = torch.flip(seq, dims=[-1])
            seq = torch.rot90(seq, random.randint(0, 3), dims=(-2, -1)).contiguous()
        return seq[:self.n_in], seq[self.n_in:]


def list_events(root, val_fraction=0.1):
    files = sorted(glob.glob(os.path.join(root, "event_*.npz")))
    n_val = max(1, int(len(files) * val_fraction))
    return files[:-n_val], files[-n_val:]
