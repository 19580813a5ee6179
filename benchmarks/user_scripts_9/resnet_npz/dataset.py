import os
import random

import numpy as np
import torch
from torch.utils.data import Dataset

MEAN = np.array([0.485, 0.456, 0.406], dtype=np.float32)
STD = np.array([0.229, 0.224, 0.225], dtype=np.float32)


def make_data(path, n, seed, num_classes=10):
    """Coloured stripes and blobs, ten classes, so that the repo runs without a download."""
    rng = np.random.RandomState(seed)
    labels = rng.randint(0, num_classes, n)
    yy, xx = np.mgrid[0:32, 0:32] / 32.0
    images = np.zeros((n, 32, 32, 3), np.uint8)
    for i, c in enumerate(labels):
        ang = np.pi * c / num_classes + rng.normal(0, 0.1)
        wave = np.sin(2 * np.pi * (3 + c % 3) * (xx * np.cos(ang) + yy * np.sin(ang)) + rng.rand() * 6)
        img = 0.5 + 0.25 * wave[..., None] * (0.5 + rng.rand(3)) + rng.normal(0, 0.12, (32, 32, 3))
        images[i] = (np.clip(img, 0, 1) * 255).astype(np.uint8)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    np.savez(path, images=images, labels=labels)


class NpzImages(Dataset):
    def __init__(self, root, split, n, seed, train):
        path = os.path.join(root, '%s_%d.npz' % (split, n))
        if not os.path.exists(path):
            make_data(path, n, seed)
        self.npz = np.load(path)
        self.labels = self.npz['labels']
        self.train = train

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        img = self.npz['images'][index]
        label = self.labels[index]
        if self.train:
            img = np.pad(img, ((4, 4), (4, 4), (0, 0)), mode='reflect')
            top = random.randint(0, 8)
            left = random.randint(0, 8)
            img = img[top:top + 32, left:left + 32]
            if random.random() < 0.5:
                img = img[:, ::-1]
        img = img.astype(np.float32) / 255.0
        img = (img - MEAN) / STD
        img = torch.from_numpy(img.transpose(2, 0, 1).copy())
        return img, int(label)
