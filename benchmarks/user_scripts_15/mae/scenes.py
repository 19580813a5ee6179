"""Synthetic multispectral scenes (fields, water, clouds), in place of our Sentinel-2 chips."""
from __future__ import annotations

from pathlib import Path

import numpy as np

N_CLASSES = 6


def _smooth(rng: np.random.Generator, size: int, cells: int) -> np.ndarray:
    g = rng.standard_normal((cells + 1, cells + 1))
    t = np.linspace(0, cells - 1e-6, size)
    i = t.astype(int)
    f = t - i
    rows = g[i] * (1 - f)[:, None] + g[i + 1] * f[:, None]
    return rows[:, i] * (1 - f) + rows[:, i + 1] * f


def _chip(rng: np.random.Generator, bands: int, size: int, signatures: np.ndarray) -> tuple[np.ndarray, int]:
    label = int(rng.integers(N_CLASSES))
    abundance = np.stack([_smooth(rng, size, int(rng.integers(2, 6))) for _ in range(N_CLASSES)])
    abundance[label] += 1.2
    abundance = np.exp(2 * abundance)
    abundance /= abundance.sum(0)
    x = np.einsum("kb,khw->bhw", signatures, abundance)
    x *= 1 + 0.15 * _smooth(rng, size, 3)
    x += 25 * rng.standard_normal((bands, size, size))
    return np.clip(x, 0, 10000).astype(np.uint16), label


def load_or_make(root: Path, n: int, bands: int, size: int, split: str) -> tuple[np.ndarray, np.ndarray]:
    fx, fy = root / f"{split}_x_{n}x{bands}x{size}.npy", root / f"{split}_y_{n}x{bands}x{size}.npy"
    if not fx.exists():
        root.mkdir(parents=True, exist_ok=True)
        signatures = np.random.default_rng(77).uniform(300, 4000, (N_CLASSES, bands))
        rng = np.random.default_rng({"train": 1, "probe": 2, "test": 3}[split])
        x = np.lib.format.open_memmap(fx, "w+", np.uint16, (n, bands, size, size))
        y = np.empty(n, np.int64)
        for i in range(n):
            x[i], y[i] = _chip(rng, bands, size, signatures)
        x.flush()
        np.save(fy, y)
    return np.load(fx), np.load(fy)
