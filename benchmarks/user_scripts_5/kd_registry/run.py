import random

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

import kd
from kd.trainer import DistillTrainer

cfg = dict(
    teacher=dict(type="PlainNet", widths=[24, 48, 96]),
    student=dict(type="PlainNet", widths=[8, 16, 32]),
    losses=[dict(type="SmoothCE"), dict(type="SoftTarget", T=4.0), dict(type="Similarity", weight=5.0)],
    hooks=[dict(type="TextLogger", interval=10), dict(type="StepTimer"), dict(type="PreciseBN"),
           dict(type="LossGuard"), dict(type="Housekeeping")],
    loader=dict(batch_size=32, num_workers=0),
    lr=2e-3,
    seed=0,
)


class Stripes(Dataset):
    """10 classes = 10 orientations of a grating, random colour / phase"""

    mean = np.array([0.5, 0.5, 0.5], dtype=np.float32).reshape(3, 1, 1)
    std = np.array([0.25, 0.25, 0.25], dtype=np.float32).reshape(3, 1, 1)

    def __init__(self, n, train, seed):
        rng = np.random.RandomState(seed)
        yy, xx = np.mgrid[:32, :32] / 32.0
        self.y = rng.randint(0, 10, n)
        self.x = np.zeros((n, 3, 32, 32), dtype=np.uint8)
        for i in range(n):
            th = np.pi * self.y[i] / 10
            g = 0.5 + 0.5 * np.sin(2 * np.pi * 4 * (xx * np.cos(th) + yy * np.sin(th)) + rng.rand() * 6.28)
            im = g[None] * rng.rand(3, 1, 1) + 0.2 * rng.randn(3, 32, 32)
            self.x[i] = (255 * im.clip(0, 1)).astype(np.uint8)
        self.train = train

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        x = self.x[i].astype(np.float32) / 255.0
        x = (x - self.mean) / self.std
        if self.train:
            # random crop with padding
            p = np.pad(x, ((0, 0), (4, 4), (4, 4)))
            a, b = random.randint(0, 8), random.randint(0, 8)
            x = p[:, a:a + 32, b:b + 32]
        return torch.from_numpy(np.ascontiguousarray(x)), int(self.y[i])


def main():
    random.seed(cfg["seed"])
    np.random.seed(cfg["seed"])
    torch.manual_seed(cfg["seed"])
    torch.backends.cudnn.deterministic = True
    loaders = {
        "train": DataLoader(Stripes(640, True, 1), shuffle=True, drop_last=True, **cfg["loader"]),
        "val": DataLoader(Stripes(200, False, 2), **cfg["loader"]),
    }
    tr = DistillTrainer(cfg, loaders)
    tr.pretrain_teacher(3)
    tr.fit(2)
    torch.save(tr.student.state_dict(), "student.pt")


if __name__ == "__main__":
    main()
