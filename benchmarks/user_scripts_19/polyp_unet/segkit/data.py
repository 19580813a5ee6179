"""Kvasir-SEG: images/*.jpg and masks/*.jpg with equal names (1000 pairs, 330-1900 px)."""
from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset

MEAN = np.array([0.485, 0.456, 0.406], dtype=np.float32)
STD = np.array([0.229, 0.224, 0.225], dtype=np.float32)


def list_pairs(root: Path) -> list[tuple[Path, Path]]:
    images = sorted((root / "images").glob("*.jpg"))
    return [(p, root / "masks" / p.name) for p in images]


class Augment:
    """NumPy versions of the albumentations we used before the licence discussion."""

    def __init__(self, rng_seed: int | None = None) -> None:
        self.rng = np.random.RandomState(rng_seed) if rng_seed is not None else np.random

    def __call__(self, image: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self.rng.rand() < 0.5:
            image, mask = image[:, ::-1], mask[:, ::-1]
        if self.rng.rand() < 0.5:
            image, mask = image[::-1], mask[::-1]
        k = self.rng.randint(4)
        image, mask = np.rot90(image, k), np.rot90(mask, k)
        if self.rng.rand() < 0.8:
            gain = 1.0 + self.rng.uniform(-0.25, 0.25)
            shift = self.rng.uniform(-20, 20)
            image = np.clip(image * gain + shift, 0, 255)
        if self.rng.rand() < 0.3:
            noise = self.rng.normal(0, 8, size=image.shape)
            image = np.clip(image + noise, 0, 255)
        return image, mask


class PolypDataset(Dataset):
    def __init__(self, pairs: list[tuple[Path, Path]], size: int, augment: Augment | None = None):
        self.pairs = pairs
        self.size = size
        self.augment = augment

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor | str]:
        image_path, mask_path = self.pairs[index]
        image = Image.open(image_path).convert("RGB").resize((self.size, self.size), Image.BILINEAR)
        mask = Image.open(mask_path).convert("L").resize((self.size, self.size), Image.NEAREST)
        image, mask = np.asarray(image), np.asarray(mask)
        if self.augment is not None:
            image, mask = self.augment(image, mask)
        image = (image.astype(np.float32) / 255.0 - MEAN) / STD
        mask = (mask > 127).astype(np.float32)[None]
        return {
            "image": torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1))),
            "mask": torch.from_numpy(mask.copy()),
            "name": image_path.stem,
        }
