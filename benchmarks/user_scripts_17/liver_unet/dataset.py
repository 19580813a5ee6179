import glob
import os

import numpy as np
import torch
from torch.utils.data import Dataset


def window(hu, level=60.0, width=400.0):
    lo, hi = level - width / 2, level + width / 2
    hu = np.clip(hu, lo, hi)
    return (hu - lo) / (hi - lo)


class SliceDataset(Dataset):
    """2.5D slices: the slice and its two neighbours are the three channels."""

    def __init__(self, root, split, crop=None):
        self.paths = sorted(glob.glob(os.path.join(root, split, "*.npz")))
        self.crop = crop
        self.index = []
        for p, path in enumerate(self.paths):
            depth = np.load(path)["label"].shape[0]
            self.index += [(p, z) for z in range(depth)]

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        p, z = self.index[i]
        f = np.load(self.paths[p])
        volume = f["volume"].astype(np.float32)
        label = f["label"].astype(np.int64)
        volume = window(volume)
        depth = volume.shape[0]
        planes = [volume[max(z - 1, 0)], volume[z], volume[min(z + 1, depth - 1)]]
        img = np.stack(planes, axis=0)
        seg = label[z]
        if self.crop is not None:
            h, w = seg.shape
            y = int(torch.randint(0, h - self.crop + 1, (1,)))
            x = int(torch.randint(0, w - self.crop + 1, (1,)))
            img = img[:, y:y + self.crop, x:x + self.crop]
            seg = seg[y:y + self.crop, x:x + self.crop]
            if torch.rand(1) < 0.5:
                img = img[:, :, ::-1].copy()
                seg = seg[:, ::-1].copy()
        return torch.from_numpy(np.ascontiguousarray(img)), torch.from_numpy(np.ascontiguousarray(seg))
