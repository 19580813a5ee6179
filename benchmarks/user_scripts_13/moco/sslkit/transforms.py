"""torchvision is not installed on the cluster image, so the SimCLR recipe by hand (PIL + numpy)."""
import math
import random

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

MEAN = [0.485, 0.456, 0.406]
STD = [0.229, 0.224, 0.225]


def random_resized_crop(img, size, scale):
    w, h = img.size
    area = w * h * random.uniform(*scale)
    ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
    cw = min(w, max(1, int(round(math.sqrt(area * ratio)))))
    ch = min(h, max(1, int(round(math.sqrt(area / ratio)))))
    x, y = random.randint(0, w - cw), random.randint(0, h - ch)
    return img.resize((size, size), Image.BICUBIC, box=(x, y, x + cw, y + ch))


def color_jitter(img, strength):
    b = c = s = 0.4 * strength
    h = 0.1 * strength
    ops = [lambda im: ImageEnhance.Brightness(im).enhance(random.uniform(1 - b, 1 + b)),
           lambda im: ImageEnhance.Contrast(im).enhance(random.uniform(1 - c, 1 + c)),
           lambda im: ImageEnhance.Color(im).enhance(random.uniform(1 - s, 1 + s)),
           lambda im: shift_hue(im, random.uniform(-h, h))]
    random.shuffle(ops)
    for op in ops:
        img = op(img)
    return img


def shift_hue(img, f):
    h, s, v = img.convert("HSV").split()
    h = np.array(h, dtype=np.uint8)
    h = (h.astype(np.int16) + int(f * 255)).astype(np.uint8)
    return Image.merge("HSV", (Image.fromarray(h), s, v)).convert("RGB")


def to_tensor(img):
    x = np.asarray(img).astype(np.float32) / 255.0
    x = (x - np.array(MEAN)) / np.array(STD)
    return torch.from_numpy(x.transpose(2, 0, 1)).float()


class SimCLRTransform:
    def __init__(self, size, min_scale=0.3, jitter=1.0):
        self.size = size
        self.scale = (min_scale, 1.0)
        self.jitter = jitter

    def __call__(self, img):
        img = random_resized_crop(img, self.size, self.scale)
        if random.random() < 0.5:
            img = ImageOps.mirror(img)
        if random.random() < 0.8:
            img = color_jitter(img, self.jitter)
        if random.random() < 0.2:
            img = img.convert("L").convert("RGB")
        if random.random() < 0.5:
            img = img.filter(ImageFilter.GaussianBlur(random.uniform(0.1, 2.0)))
        return to_tensor(img)


class TwoCrops:
    def __init__(self, base):
        self.base = base

    def __call__(self, img):
        return self.base(img), self.base(img)
