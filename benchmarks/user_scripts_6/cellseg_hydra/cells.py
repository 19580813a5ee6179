import numpy as np
import torch
from torch.utils.data import Dataset


class CellDataset(Dataset):
    """Fluorescence-like images; everything is simulated up front and held in memory."""

    def __init__(self, n, size, seed, augment):
        rng = np.random.default_rng(seed)
        yy, xx = np.mgrid[0:size, 0:size].astype(np.float32)
        self.images = np.zeros((n, size, size), dtype=np.uint8)
        self.masks = np.zeros((n, size, size), dtype=np.uint8)
        self.augment = augment
        for i in range(n):
            img = rng.normal(30, 8, (size, size)).astype(np.float32)
            for _ in range(rng.integers(3, 8)):
                cy, cx = rng.uniform(4, size - 4, 2)
                a, b = rng.uniform(3, 7, 2)
                th = rng.uniform(0, np.pi)
                u = ((yy - cy) * np.cos(th) + (xx - cx) * np.sin(th)) / a
                v = (-(yy - cy) * np.sin(th) + (xx - cx) * np.cos(th)) / b
                r = u ** 2 + v ** 2
                img += 110 * np.exp(-r)
                self.masks[i][r < 1.0] = 1
            self.images[i] = np.clip(img, 0, 255).astype(np.uint8)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, idx):
        img = torch.from_numpy(self.images[idx]).float().div_(255.)
        mask = torch.from_numpy(self.masks[idx]).float()
        if self.augment:
            k = int(torch.randint(0, 4, (1,)))
            img, mask = torch.rot90(img, k, (0, 1)), torch.rot90(mask, k, (0, 1))
            if torch.rand(1).item() < 0.5:
                img, mask = img.flip(1), mask.flip(1)
            img = img * (0.8 + 0.4 * torch.rand(1))
        img = (img - 0.25) / 0.2
        return img[None].contiguous(), mask[None].contiguous()
