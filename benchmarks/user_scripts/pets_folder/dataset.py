import glob
import os
import random

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch.utils.data import Dataset

MEAN = np.array([0.5, 0.5, 0.5], dtype=np.float32)
STD = np.array([0.25, 0.25, 0.25], dtype=np.float32)


class Compose:
    def __init__(self, *fns):
        self.fns = fns

    def __call__(self, img, rng):
        for f in self.fns:
            img = f(img, rng)
        return img


def hflip(img, rng):
    return ImageOps.mirror(img) if rng.random() < 0.5 else img


def crop(img, rng, size=32):
    w, h = img.size
    x, y = rng.randint(0, w - size), rng.randint(0, h - size)
    return img.crop((x, y, x + size, y + size))


def jitter(img, rng):
    img = ImageEnhance.Brightness(img).enhance(rng.uniform(0.7, 1.3))
    return ImageEnhance.Contrast(img).enhance(rng.uniform(0.7, 1.3))


class PetFolder(Dataset):
    """ImageFolder, but remembers how hard every file is (see `report`)."""

    def __init__(self, root, train=True, size=32, seed=0):
        self.classes = sorted(os.listdir(root))
        self.items = [(p, i) for i, c in enumerate(self.classes)
                      for p in sorted(glob.glob(os.path.join(root, c, '*.png')))]
        self.train = train
        self.size = size
        self.rng = random.Random(seed)          # own generator, NOT worker safe
        self.difficulty = [1.0] * len(self.items)
        self.aug = Compose(hflip, crop, jitter)
        self.strong = True

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        path, label = self.items[i]
        img = Image.open(path).convert('RGB')
        # files that are already easy are augmented, the hard ones are only cropped
        if self.train and self.strong and self.difficulty[i] < 1.2:
            img = self.aug(img, self.rng)
        elif self.train:
            img = crop(img, self.rng, self.size)
        else:
            o = (img.size[0] - self.size) // 2
            img = img.crop((o, o, o + self.size, o + self.size))
        x = np.asarray(img, dtype=np.float32) / 255.0
        x = (x - MEAN) / STD
        return torch.from_numpy(x.transpose(2, 0, 1).copy()), label, i

    def report(self, idx, losses):
        for i, l in zip(idx, losses):
            self.difficulty[i] = 0.7 * self.difficulty[i] + 0.3 * l
