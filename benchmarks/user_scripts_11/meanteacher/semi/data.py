from __future__ import annotations

import random

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch.utils.data import DataLoader, Dataset, RandomSampler

from semi.textures import make_split

MEAN = torch.tensor([0.5, 0.5, 0.5]).view(3, 1, 1)
STD = torch.tensor([0.25, 0.25, 0.25]).view(3, 1, 1)


def weak(img: Image.Image) -> Image.Image:
    size = img.size[0]
    if random.random() < 0.5:
        img = ImageOps.mirror(img)
    pad = size // 8
    img = ImageOps.expand(img, pad)
    x, y = random.randint(0, 2 * pad), random.randint(0, 2 * pad)
    return img.crop((x, y, x + size, y + size))


OPS = [
    lambda im, m: ImageOps.autocontrast(im),
    lambda im, m: ImageEnhance.Brightness(im).enhance(1 + m),
    lambda im, m: ImageEnhance.Color(im).enhance(1 + m),
    lambda im, m: ImageEnhance.Contrast(im).enhance(1 + m),
    lambda im, m: ImageEnhance.Sharpness(im).enhance(1 + m),
    lambda im, m: ImageOps.equalize(im),
    lambda im, m: ImageOps.posterize(im, 4 + int(abs(m) * 4)),
    lambda im, m: ImageOps.solarize(im, int(256 * (1 - abs(m)))),
    lambda im, m: im.rotate(30 * m),
    lambda im, m: im.transform(im.size, Image.AFFINE, (1, 0.3 * m, 0, 0, 1, 0)),
    lambda im, m: im.transform(im.size, Image.AFFINE, (1, 0, 0.3 * m * im.size[0], 0, 1, 0)),
]


def strong(img: Image.Image, n: int = 3) -> Image.Image:
    """RandAugment and a grey cut-out"""
    img = weak(img)
    for op in random.choices(OPS, k=n):
        img = op(img, random.uniform(-0.9, 0.9))
    size = img.size[0]
    s = int(random.uniform(0, 0.5) * size)
    x, y = random.randint(0, size - 1), random.randint(0, size - 1)
    img.paste((127, 127, 127), (max(0, x - s // 2), max(0, y - s // 2), min(size, x + s // 2), min(size, y + s // 2)))
    return img


def to_tensor(img: Image.Image) -> torch.Tensor:
    t = torch.from_numpy(np.array(img)).permute(2, 0, 1).float().div(255)
    return (t - MEAN) / STD


class Labelled(Dataset):
    def __init__(self, images: np.ndarray, labels: np.ndarray, train: bool):
        self.images, self.labels, self.train = images, labels, train

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, i: int):
        img = Image.fromarray(self.images[i])
        return to_tensor(weak(img) if self.train else img), int(self.labels[i])


class Unlabelled(Dataset):
    def __init__(self, images: np.ndarray):
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int):
        img = Image.fromarray(self.images[i])
        return i, to_tensor(weak(img)), to_tensor(strong(img))


def build_loaders(cfg):
    d, steps = cfg.data, cfg.schedule.steps
    images, labels = make_split(d.num_unlabeled, d.image_size, d.num_classes, seed=10)
    keep = np.concatenate([np.where(labels == c)[0][:d.labels_per_class] for c in range(d.num_classes)])
    lb, ulb = Labelled(images[keep], labels[keep], train=True), Unlabelled(images)
    test = Labelled(*make_split(d.num_test, d.image_size, d.num_classes, seed=11), train=False)
    common = dict(pin_memory=True, persistent_workers=d.workers > 0)

    # one long epoch, the samplers draw with replacement
    lb_loader = DataLoader(lb, d.batch_size, num_workers=max(1, d.workers // 4), drop_last=True,
                           sampler=RandomSampler(lb, replacement=True, num_samples=steps * d.batch_size), **common)
    ulb_loader = DataLoader(ulb, d.batch_size * d.mu, num_workers=d.workers, drop_last=True,
                            sampler=RandomSampler(ulb, replacement=True, num_samples=steps * d.batch_size * d.mu),
                            **common)
    test_loader = DataLoader(test, 256, num_workers=max(1, d.workers // 4), **common)
    return lb_loader, ulb_loader, test_loader
