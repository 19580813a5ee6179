"""Click logs as three memory-mapped arrays per split: dense, cat, label."""
from __future__ import annotations

import os

import numpy as np
import torch
from torch.utils.data import Dataset

from .config import DataConfig

CHUNK = 500_000


def _generate(folder: str, rows: int, cfg: DataConfig, seed: int) -> None:
    os.makedirs(folder, exist_ok=True)
    n_cat = len(cfg.cardinalities)
    dense = np.lib.format.open_memmap(f"{folder}/dense.npy", "w+", np.float32, (rows, cfg.n_dense))
    cat = np.lib.format.open_memmap(f"{folder}/cat.npy", "w+", np.int32, (rows, n_cat))
    label = np.lib.format.open_memmap(f"{folder}/label.npy", "w+", np.uint8, (rows,))
    effects_rng = np.random.default_rng(cfg.seed)
    effects = [effects_rng.normal(0, 0.5, size=c) for c in cfg.cardinalities]
    w = effects_rng.normal(0, 0.3, size=cfg.n_dense)
    rng = np.random.default_rng(seed)
    for start in range(0, rows, CHUNK):
        m = min(CHUNK, rows - start)
        d = rng.exponential(5.0, size=(m, cfg.n_dense)).astype(np.float32)
        z = np.log1p(d) @ w - 1.5
        c = np.empty((m, n_cat), dtype=np.int32)
        for j, card in enumerate(cfg.cardinalities):
            c[:, j] = np.minimum(rng.zipf(1.3, size=m) - 1, card - 1)
            z += effects[j][c[:, j]]
        dense[start:start + m] = d
        cat[start:start + m] = c
        label[start:start + m] = rng.random(m) < 1 / (1 + np.exp(-z))


def prepare(cfg: DataConfig) -> None:
    for split, rows, seed in (("train", cfg.rows_train, 1), ("valid", cfg.rows_valid, 2)):
        folder = os.path.join(cfg.path, split)
        if not os.path.exists(f"{folder}/label.npy"):
            _generate(folder, rows, cfg, cfg.seed + seed)


class ClickDataset(Dataset):
    def __init__(self, folder: str) -> None:
        self.dense = np.load(f"{folder}/dense.npy", mmap_mode="r")
        self.cat = np.load(f"{folder}/cat.npy", mmap_mode="r")
        self.label = np.load(f"{folder}/label.npy", mmap_mode="r")

    def __len__(self) -> int:
        return self.label.shape[0]

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {
            "dense": torch.from_numpy(np.log1p(self.dense[index])),
            "cat": torch.from_numpy(self.cat[index].astype(np.int64)),
            "label": torch.tensor(self.label[index], dtype=torch.float32),
        }
