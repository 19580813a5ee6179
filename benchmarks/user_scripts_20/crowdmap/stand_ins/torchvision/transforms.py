"""The transforms of crowdmap, on images of Pillow."""

import numpy as np
import torch
from PIL import ImageEnhance


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, image):
        for transform in self.transforms:
            image = transform(image)
        return image


class ToTensor:
    def __call__(self, image):
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous().float().div(255)


class Normalize:
    def __init__(self, mean, std):
        self.mean, self.std = (torch.tensor(v).view(-1, 1, 1) for v in (mean, std))

    def __call__(self, image):
        return (image - self.mean) / self.std


class ColorJitter:
    def __init__(self, brightness, contrast, saturation):
        kinds = ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color
        self.parts = list(zip(kinds, (brightness, contrast, saturation), strict=True))

    def __call__(self, image):
        for kind, by in self.parts:
            image = kind(image).enhance(1 + by * (2 * torch.rand(()).item() - 1))
        return image
