"""Synthetic pallet images. The production loader has the same interface."""
from __future__ import annotations

from typing import Dict, List, Tuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from .config import DataConfig

Target = Dict[str, Tensor]


class PalletDataset(Dataset):
    def __init__(self, cfg: DataConfig, length: int, seed: int) -> None:
        self._cfg = cfg
        self._length = length
        self._seed = seed

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Tuple[Tensor, Target]:
        # Every image has its own generator: image `index` is the same in every epoch and process.
        rng = np.random.default_rng((self._seed, index))
        size = self._cfg.image_size
        image = rng.normal(90.0, 12.0, (size, size, 3))
        boxes, labels = [], []
        for _ in range(int(rng.integers(0, self._cfg.max_boxes + 1))):
            label = int(rng.integers(0, self._cfg.num_classes))
            w, h = rng.integers(8, 30, size=2)
            x0, y0 = rng.integers(0, size - w), rng.integers(0, size - h)
            image[y0:y0 + h, x0:x0 + w, label] += 110.0
            boxes.append([x0, y0, x0 + w, y0 + h])
            labels.append(label)
        image_u8 = np.clip(image, 0, 255).astype(np.uint8)
        tensor = torch.from_numpy(image_u8).permute(2, 0, 1).float() / 255.0
        target: Target = {
            "boxes": torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4),
            "labels": torch.tensor(labels, dtype=torch.int64),
            "image_id": torch.tensor(index),
        }
        return tensor, target


def collate(batch: List[Tuple[Tensor, Target]]) -> Tuple[List[Tensor], List[Target]]:
    images, targets = zip(*batch)
    return list(images), list(targets)
