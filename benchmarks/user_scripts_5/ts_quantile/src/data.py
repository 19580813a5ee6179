from typing import Dict, Tuple

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


def synthesize(n_series: int, length: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    t = np.arange(length)
    out = []
    for _ in range(n_series):
        daily = rng.uniform(0.5, 2) * np.sin(2 * np.pi * (t + rng.integers(24)) / 24)
        weekly = rng.uniform(0.2, 1) * np.sin(2 * np.pi * t / 168)
        noise = rng.normal(0, 0.3, length).cumsum() * 0.1 + rng.normal(0, 0.2, length)
        out.append(rng.uniform(5, 50) + rng.uniform(1, 4) * (daily + weekly + noise))
    return np.stack(out)


class WindowDataset(Dataset):
    """Sliding windows over every series, plus calendar features."""

    def __init__(self, values: np.ndarray, context: int, horizon: int, stride: int):
        self.values = values
        self.context = context
        self.horizon = horizon
        self.index = [
            (s, t)
            for s in range(values.shape[0])
            for t in range(0, values.shape[1] - context - horizon, stride)
        ]

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, i: int) -> Dict[str, torch.Tensor]:
        s, t = self.index[i]
        window = self.values[s, t : t + self.context + self.horizon]
        past, future = window[: self.context], window[self.context :]
        mu, sigma = past.mean(), past.std() + 1e-5
        pos = np.arange(t, t + self.context + self.horizon)
        cal = np.stack(
            [np.sin(2 * np.pi * pos / 24), np.cos(2 * np.pi * pos / 24), np.sin(2 * np.pi * pos / 168)],
            axis=-1,
        )
        return {
            "past": torch.FloatTensor((past - mu) / sigma),
            "future": torch.FloatTensor((future - mu) / sigma),
            "cal": torch.FloatTensor(cal),
            "scale": torch.FloatTensor([mu, sigma]),
            "series": torch.tensor(s),
        }


def build_loaders(cfg: dict) -> Tuple[DataLoader, DataLoader]:
    d = cfg["data"]
    values = synthesize(d["n_series"], d["length"], cfg["seed"])
    cut = int(d["length"] * (1 - d["val_frac"])) - d["horizon"]
    train = WindowDataset(values[:, :cut], d["context"], d["horizon"], d["stride"])
    val = WindowDataset(values[:, cut - d["context"] :], d["context"], d["horizon"], d["stride"])
    kw = cfg["loader"]
    train_loader = DataLoader(train, shuffle=True, drop_last=True, **kw)
    val_loader = DataLoader(val, shuffle=False, **kw)
    return train_loader, val_loader
