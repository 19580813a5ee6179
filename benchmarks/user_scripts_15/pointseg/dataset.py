import os

import numpy as np
import torch
from torch.utils.data import Dataset


def pc_normalize(pc):
    pc = pc - pc.mean(0)
    return pc / np.max(np.sqrt(np.sum(pc ** 2, axis=1)))


class PartDataset(Dataset):
    def __init__(self, root, split, npoints, cache_size=20000):
        d = os.path.join(root, split)
        self.paths = [os.path.join(d, f) for f in sorted(os.listdir(d))]
        self.split = split
        self.npoints = npoints
        self.cache = {}             # from index to (xyz, cat, seg)
        self.cache_size = cache_size

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        if index in self.cache:
            xyz, cat, seg = self.cache[index]
        else:
            data = np.loadtxt(self.paths[index]).astype(np.float32)
            xyz, seg, cat = data[:, :3], data[:, 3].astype(np.int64), int(data[0, 4])
            if len(self.cache) < self.cache_size:
                self.cache[index] = (xyz, cat, seg)

        xyz = pc_normalize(xyz)
        if self.split == 'train':
            choice = np.random.choice(len(seg), self.npoints, replace=False)
        else:
            choice = np.arange(0, len(seg), len(seg) // self.npoints)[:self.npoints]
        xyz, seg = xyz[choice], seg[choice]

        if self.split == 'train':
            a = np.random.uniform(0, 2 * np.pi)
            rot = np.array([[np.cos(a), -np.sin(a), 0], [np.sin(a), np.cos(a), 0], [0, 0, 1]])
            xyz = xyz @ rot
            xyz = xyz * np.random.uniform(0.8, 1.25)
            xyz = xyz + np.clip(0.01 * np.random.randn(*xyz.shape), -0.05, 0.05)
        return (torch.from_numpy(np.ascontiguousarray(xyz.T, dtype=np.float32)), cat,
                torch.from_numpy(seg))
