import random

import numpy as np
import torch
import torch.utils.data as data

MEAN = np.array([0.35, 0.35, 0.35], dtype=np.float32).reshape(3, 1, 1)
STD = np.array([0.25, 0.25, 0.25], dtype=np.float32).reshape(3, 1, 1)


def draw(rng, kind, size=32):
    img = rng.randint(0, 120, (3, size, size))
    yy, xx = np.mgrid[0:size, 0:size]
    cy, cx = rng.randint(10, size - 10, 2)
    r = rng.randint(5, 9)
    if kind == 0:
        mask = (yy - cy) ** 2 + (xx - cx) ** 2 < r * r
    elif kind == 1:
        mask = (abs(yy - cy) < r) & (abs(xx - cx) < r)
    elif kind == 2:
        mask = (abs(yy - cy) + abs(xx - cx)) < r
    else:
        mask = (abs(yy - cy) < 3) | (abs(xx - cx) < 3)
    col = rng.randint(90, 255, 3)
    for c in range(3):
        img[c][mask] = col[c]
    return img.astype(np.uint8)


class Shapes(data.Dataset):
    num_classes = 4

    def __init__(self, n, train=True, noise=0.0):
        rng = np.random.RandomState(7 if train else 8)
        self.train = train
        self.labels = rng.randint(0, 4, n)
        self.images = [draw(rng, k) for k in self.labels]
        if noise > 0:
            flip = rng.rand(n) < noise
            self.labels[flip] = rng.randint(0, 4, flip.sum())

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        img = self.images[index].astype(np.float32) / 255.
        if self.train:
            if random.random() < 0.5:
                img = img[:, :, ::-1]
            # random crop with padding
            pad = np.pad(img, ((0, 0), (4, 4), (4, 4)), mode='constant')
            dy, dx = random.randint(0, 8), random.randint(0, 8)
            img = pad[:, dy:dy + 32, dx:dx + 32]
        img = (img - MEAN) / STD
        return torch.from_numpy(img.copy()), int(self.labels[index])
