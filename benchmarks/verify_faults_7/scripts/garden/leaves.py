"""Little pictures, made once; each time they are taken they are turned, shifted and lit anew."""

import random

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from .settings import settings


class Leaves(Dataset):
    def __init__(self, count, seed, augment):
        rng = np.random.default_rng(seed)
        y, x = np.mgrid[-1:1:8j, -1:1:8j]
        tilt = rng.uniform(0.3, 1.2, (count, 1, 1))
        self.pictures = np.exp(-((x[None] * tilt) ** 2 + (y[None] / tilt) ** 2) * 3).astype(np.float32) * 2 - 1
        self.kinds = (tilt[:, 0, 0] > 0.75).astype(np.int64)
        self.augment = augment

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        picture = self.pictures[index]
        if self.augment:
            if random.random() < 0.5:
                picture = picture[:, ::-1]
            picture = np.roll(picture, np.random.randint(-1, 2), axis=0)
            picture = picture * np.random.uniform(0.8, 1.2)
        return torch.from_numpy(picture.astype(np.float32))[None], int(self.kinds[index])


def seed_worker(number):
    seed = torch.initial_seed() % 2**32
    np.random.seed(seed)
    random.seed(seed)


def loaders():
    train = DataLoader(
        Leaves(176, 1, True), batch_size=settings.batch, shuffle=True, num_workers=2, worker_init_fn=seed_worker,
        generator=torch.Generator().manual_seed(torch.initial_seed() % 2**31),
    )
    valid = DataLoader(Leaves(60, 2, False), batch_size=settings.batch)
    return train, valid
