import random

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

MEAN, STD = 0.35, 0.3


class Fruit(Dataset):
    """Round things of five colours and sizes on a noisy ground."""

    def __init__(self, count, seed, classes, augment):
        rng = np.random.RandomState(seed)
        self.labels = rng.randint(0, classes, count)
        yy, xx = np.mgrid[0:20, 0:20]
        self.images = []
        for label in self.labels:
            cx, cy = rng.uniform(6, 14, 2)
            disc = ((xx - cx) ** 2 + (yy - cy) ** 2 < (3 + 0.7 * label) ** 2).astype(np.float32)
            colour = np.array([0.3 + 0.1 * label, 0.8 - 0.1 * label, 0.5], dtype=np.float32) + rng.normal(0, 0.12, 3)
            image = disc[None] * colour[:, None, None] + rng.normal(0.2, 0.2, (3, 20, 20))
            self.images.append(image.astype(np.float32))
        self.augment = augment

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = self.images[index].copy()
        if self.augment:
            if random.random() < 0.5:
                image = image[:, :, ::-1]
            top, left = np.random.randint(0, 5, 2)
            image = np.pad(image, ((0, 0), (2, 2), (2, 2)), mode="edge")[:, top : top + 20, left : left + 20]
            image = image * np.random.uniform(0.7, 1.3) + np.random.normal(0, 0.05, image.shape)
        image = (image - MEAN) / STD
        return torch.from_numpy(np.ascontiguousarray(image, dtype=np.float32)), int(self.labels[index])


def worker_init_fn(worker_id):
    seed = torch.initial_seed() % 2**32
    random.seed(seed)
    np.random.seed(seed)


def loaders(cfg):
    generator = torch.Generator()
    generator.manual_seed(cfg.seed)
    train = DataLoader(
        Fruit(cfg.train_size, 1, cfg.classes, augment=True),
        batch_size=cfg.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=cfg.workers,
        worker_init_fn=worker_init_fn,
        generator=generator,
    )
    val = DataLoader(Fruit(cfg.val_size, 2, cfg.classes, augment=False), batch_size=cfg.val_batch)
    return train, val
