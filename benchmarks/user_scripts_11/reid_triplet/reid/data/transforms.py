import math
import random

import numpy as np
import torch
from PIL import Image, ImageOps

MEAN = np.array([0.485, 0.456, 0.406], dtype=np.float32)
STD = np.array([0.229, 0.224, 0.225], dtype=np.float32)


class TrainTransform(object):
    def __init__(self, h, w, pad=10, erase_prob=0.5):
        self.h, self.w = h, w
        self.pad = pad
        self.erase_prob = erase_prob

    def __call__(self, img):
        if random.random() < 0.5:
            img = img.transpose(Image.FLIP_LEFT_RIGHT)
        img = ImageOps.expand(img, self.pad)
        x, y = random.randint(0, 2 * self.pad), random.randint(0, 2 * self.pad)
        img = img.crop((x, y, x + self.w, y + self.h))
        return self.erase(normalize(img))

    def erase(self, t):
        """random erasing, Zhong et al."""
        if random.random() > self.erase_prob:
            return t
        for _ in range(100):
            area = random.uniform(0.02, 0.4) * self.h * self.w
            ratio = random.uniform(0.3, 1 / 0.3)
            eh, ew = int(round(math.sqrt(area * ratio))), int(round(math.sqrt(area / ratio)))
            if eh < self.h and ew < self.w:
                y, x = random.randint(0, self.h - eh), random.randint(0, self.w - ew)
                t[:, y:y + eh, x:x + ew] = 0
                return t
        return t


def normalize(img):
    a = np.asarray(img, dtype=np.float32) / 255.0
    return torch.from_numpy(((a - MEAN) / STD).transpose(2, 0, 1).copy())
