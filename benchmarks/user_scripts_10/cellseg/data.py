from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch.utils.data import Dataset

CLASSES = ("background", "cell", "nucleus", "border")


def synth_cells(rng: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Elliptic cells with nucleus and border on an uneven background; uint8 image and uint8 mask."""
    yy, xx = np.mgrid[:size, :size].astype(np.float32)
    img = 60 + 30 * np.sin(xx / size * rng.uniform(1, 4)) + 30 * np.cos(yy / size * rng.uniform(1, 4))
    mask = np.zeros((size, size), np.uint8)
    for _ in range(rng.integers(4, 12)):
        cx, cy = rng.uniform(0, size, 2)
        a, b = rng.uniform(size / 16, size / 7, 2)
        t = rng.uniform(0, np.pi)
        u = ((xx - cx) * np.cos(t) + (yy - cy) * np.sin(t)) / a
        v = (-(xx - cx) * np.sin(t) + (yy - cy) * np.cos(t)) / b
        r = np.sqrt(u * u + v * v)
        mask[r < 1.0] = 3
        mask[r < 0.85] = 1
        mask[r < 0.4] = 2
        img[r < 1.0] = rng.uniform(110, 150)
        img[r < 0.85] = rng.uniform(120, 190)
        img[r < 0.4] = rng.uniform(190, 240)
    img = img + rng.normal(0, 18, img.shape)
    return img.clip(0, 255).astype(np.uint8), mask


def prepare(root: str, n_train: int, n_val: int, size: int, seed: int = 5) -> None:
    path = Path(root)
    if (path / "val_masks.npy").exists():
        return
    path.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    for split, n in (("train", n_train), ("val", n_val)):
        pairs = [synth_cells(rng, size) for _ in range(n)]
        np.save(path / f"{split}_images.npy", np.stack([p[0] for p in pairs]))
        np.save(path / f"{split}_masks.npy", np.stack([p[1] for p in pairs]))


class CellDataset(Dataset):
    def __init__(self, root: str, split: str, augment: bool = False):
        self.images = np.load(Path(root) / f"{split}_images.npy", mmap_mode="r")
        self.masks = np.load(Path(root) / f"{split}_masks.npy", mmap_mode="r")
        self.augment = augment

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        img, mask = self.images[i], self.masks[i]
        if self.augment:
            k = int(torch.randint(4, (1,)))
            img, mask = np.rot90(img, k), np.rot90(mask, k)
            if torch.rand(()) < 0.5:
                img, mask = img[:, ::-1], mask[:, ::-1]
        # uint8 on purpose: normalised on the GPU, see Engine.preprocess
        return torch.from_numpy(img.copy())[None], torch.from_numpy(mask.copy())
