from __future__ import annotations

import random

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset


def to_tensor(img: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(img.transpose(2, 0, 1))).float()


def downscale(img: np.ndarray, scale: int) -> np.ndarray:
    """bicubic, the degradation everybody reports numbers for"""
    h, w = img.shape[:2]
    pil = Image.fromarray((img * 255.0).round().astype(np.uint8))
    return np.asarray(pil.resize((w // scale, h // scale), Image.BICUBIC), dtype=np.float32) / 255.0


class PatchDataset(Dataset):
    """Random patches from pictures held in memory; every picture is visited `repeat` times per epoch."""

    def __init__(self, images: list[np.ndarray], patch: int, scale: int, repeat: int, sigma: float):
        self.images = images
        self.patch = patch
        self.scale = scale
        self.repeat = repeat
        self.sigma = sigma

    def __len__(self) -> int:
        return len(self.images) * self.repeat

    def __getitem__(self, idx: int) -> tuple[Tensor, Tensor]:
        img = self.images[idx % len(self.images)].astype(np.float32) / 255.0
        # geometric augmentation
        if random.random() < 0.5:
            img = np.ascontiguousarray(img[:, ::-1])
        if random.random() < 0.5:
            img = np.ascontiguousarray(img[::-1])
        if random.random() < 0.5:
            img = np.ascontiguousarray(img.transpose(1, 0, 2))
        h, w = img.shape[:2]
        y = random.randrange(0, h - self.patch + 1)
        x = random.randrange(0, w - self.patch + 1)
        hr = img[y:y + self.patch, x:x + self.patch]
        lr = downscale(hr, self.scale)
        if self.sigma > 0:
            lr = lr + np.random.normal(0, self.sigma / 255.0, lr.shape)
        return to_tensor(lr), to_tensor(hr)


class FullImageDataset(Dataset):
    """Whole pictures for validation"""

    def __init__(self, images: list[np.ndarray], scale: int):
        self.images = images
        self.scale = scale

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, idx: int) -> tuple[Tensor, Tensor]:
        img = self.images[idx].astype(np.float32) / 255.0
        return to_tensor(downscale(img, self.scale)), to_tensor(img)
