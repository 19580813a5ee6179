"""Just enough of torchvision.transforms (the cluster image has no torchvision)."""
import math
import random

import numpy as np
import torch
from PIL import Image, ImageEnhance

MEAN = [0.485, 0.456, 0.406]
STD = [0.229, 0.224, 0.225]


class Compose:
    def __init__(self, ts):
        self.ts = ts

    def __call__(self, img):
        for t in self.ts:
            img = t(img)
        return img


class RandomResizedCrop:
    def __init__(self, size, scale=(0.5, 1.0)):
        self.size = size
        self.scale = scale

    def __call__(self, img):
        w, h = img.size
        area = w * h * random.uniform(*self.scale)
        side = min(int(math.sqrt(area)), w, h)
        x = random.randint(0, w - side)
        y = random.randint(0, h - side)
        return img.resize((self.size, self.size), Image.BILINEAR, box=(x, y, x + side, y + side))


class Resize:
    def __init__(self, size):
        self.size = size

    def __call__(self, img):
        return img.resize((self.size, self.size), Image.BILINEAR)


class RandomHorizontalFlip:
    def __call__(self, img):
        return img.transpose(Image.FLIP_LEFT_RIGHT) if random.random() < 0.5 else img


class ColorJitter:
    def __init__(self, amount=0.2):
        self.amount = amount

    def __call__(self, img):
        for enh in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
            img = enh(img).enhance(random.uniform(1 - self.amount, 1 + self.amount))
        return img


class ToTensor:
    def __call__(self, img):
        arr = np.array(img, dtype=np.float32) / 255.0
        return torch.from_numpy(arr.transpose(2, 0, 1).copy())


class Normalize:
    def __init__(self, mean, std):
        self.mean = mean
        self.std = std

    def __call__(self, x):
        mean = torch.tensor(self.mean).view(3, 1, 1)
        std = torch.tensor(self.std).view(3, 1, 1)
        return (x - mean) / std


def train_transform(crop):
    return Compose([RandomResizedCrop(crop), RandomHorizontalFlip(), ColorJitter(),
                    ToTensor(), Normalize(MEAN, STD)])


def val_transform(crop):
    return Compose([Resize(crop), ToTensor(), Normalize(MEAN, STD)])
