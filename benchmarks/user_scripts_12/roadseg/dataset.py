import os
import random

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch.utils.data import Dataset

CLASSES = ['field', 'road', 'building', 'water', 'forest']
PALETTE = np.array([[172, 158, 104], [120, 120, 124], [186, 92, 70], [50, 84, 128], [56, 92, 48]])
MEAN = np.array([0.453, 0.421, 0.344])
STD = np.array([0.201, 0.176, 0.169])
IGNORE = 255


def draw_tiles(root, n, size, seed=7):
    """stand-in for the competition download (which needs a login)"""
    rng = np.random.RandomState(seed)
    os.makedirs(os.path.join(root, 'images'), exist_ok=True)
    os.makedirs(os.path.join(root, 'masks'), exist_ok=True)
    for k in range(n):
        m = Image.new('L', (size, size), 0)
        d = ImageDraw.Draw(m)
        for _ in range(rng.randint(1, 4)):
            x, y, r = rng.randint(0, size, 3)
            r = size // 8 + r // 4
            d.ellipse([x - r, y - r, x + r, y + r], fill=4)
        if rng.rand() < 0.5:
            x = rng.randint(0, size)
            d.line([0, x, size // 2, rng.randint(0, size), size, x], fill=3, width=size // 10)
        for _ in range(rng.randint(1, 4)):
            p = rng.randint(0, size, 2)
            d.line([p[0], 0, p[1], size], fill=1, width=max(2, size // 32))
        for _ in range(rng.randint(4, 20)):
            x, y = rng.randint(0, size, 2)
            w, h = rng.randint(size // 24 + 1, size // 9 + 2, 2)
            d.rectangle([x, y, x + w, y + h], fill=2)
        mask = np.array(m)
        img = PALETTE[mask] + rng.randn(size, size, 1) * 14 + rng.randn(1, 1, 3) * 8
        mask[:2] = IGNORE
        Image.fromarray(img.clip(0, 255).astype(np.uint8)).save(os.path.join(root, 'images', '%05d.png' % k))
        Image.fromarray(mask).save(os.path.join(root, 'masks', '%05d.png' % k))


def random_scale_crop(img, mask, crop):
    s = random.uniform(0.75, 1.5)
    h, w = mask.shape
    nh, nw = max(crop, int(h * s)), max(crop, int(w * s))
    img = np.array(Image.fromarray(img).resize((nw, nh), Image.BILINEAR))
    mask = np.array(Image.fromarray(mask).resize((nw, nh), Image.NEAREST))
    y, x = random.randint(0, nh - crop), random.randint(0, nw - crop)
    return img[y:y + crop, x:x + crop], mask[y:y + crop, x:x + crop]


def augment(img, mask):
    if random.random() < 0.5:
        img, mask = img[:, ::-1], mask[:, ::-1]
    k = random.randint(0, 3)
    img, mask = np.rot90(img, k), np.rot90(mask, k)
    img = img / 255.
    if random.random() < 0.7:
        img = img * random.uniform(0.8, 1.2) + random.uniform(-0.1, 0.1)
    if random.random() < 0.3:
        gray = img.mean(axis=2, keepdims=True)
        img = gray + (img - gray) * random.uniform(0.5, 1.5)
    if random.random() < 0.5:
        img = img + np.random.normal(0, 0.03, img.shape)
    return np.clip(img, 0, 1), mask


class TileDataset(Dataset):

    def __init__(self, root, ids, crop=None):
        self.root = root
        self.ids = ids
        self.crop = crop

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        name = '%05d.png' % self.ids[i]
        img = np.array(Image.open(os.path.join(self.root, 'images', name)).convert('RGB'))
        mask = np.array(Image.open(os.path.join(self.root, 'masks', name)))
        if self.crop:
            img, mask = random_scale_crop(img, mask, self.crop)
            img, mask = augment(img, mask)
        else:
            img = img / 255.
        img = (img - MEAN) / STD
        img = torch.from_numpy(img.transpose(2, 0, 1).copy()).float()
        mask = torch.from_numpy(mask.copy()).long()
        return img, mask, name
