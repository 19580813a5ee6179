import numpy as np
import torch
from torch.utils.data import Dataset


class TileSet(Dataset):
    """Sentinel-2 tiles, memory mapped. Reflectance is stored * 10000."""

    def __init__(self, path, cfg):
        self.x = np.load(path, mmap_mode='r')
        self.n_patches = (cfg['img'] // cfg['patch']) ** 2
        self.n_masked = int(cfg['mask_ratio'] * self.n_patches)
        self.rng = np.random.RandomState(1234)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        tile = self.x[i].astype(np.float64) / 10000.0
        tile = np.clip(tile, 0, 1.5)
        tile = (tile - tile.mean(axis=(1, 2), keepdims=True)) / (tile.std(axis=(1, 2), keepdims=True) + 1e-6)
        k = self.rng.randint(4)
        tile = np.rot90(tile, k, axes=(1, 2)).copy()
        mask = np.zeros(self.n_patches, dtype=bool)
        mask[self.rng.permutation(self.n_patches)[:self.n_masked]] = True
        return torch.from_numpy(tile).float(), torch.from_numpy(mask)


class ProbeSet(Dataset):
    def __init__(self, path):
        f = np.load(path)
        x = f['x'].astype(np.float32) / 10000.0
        x = np.clip(x, 0, 1.5)
        x = (x - x.mean(axis=(2, 3), keepdims=True)) / (x.std(axis=(2, 3), keepdims=True) + 1e-6)
        self.x, self.y = torch.from_numpy(x), torch.from_numpy(f['y'].astype(np.int64))

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]
