"""Click log: synthetic here, same columns as the warehouse export."""
import os

import numpy as np
import torch
from torch.utils.data import Dataset


def write_log(cfg):
    path = cfg["path"]
    if os.path.exists(path):
        return
    rng = np.random.default_rng(5)
    n, cards = cfg["rows"], cfg["cards"]
    cat = np.empty((n, len(cards)), np.int32)
    score = np.zeros(n, np.float32)
    for j, c in enumerate(cards):
        cat[:, j] = np.minimum((c * rng.random(n) ** 3).astype(np.int64), c - 1)
        score += (rng.normal(0, 0.6, c).astype(np.float32))[cat[:, j]]
    dense = rng.lognormal(0.0, 1.5, (n, cfg["dense"])).astype(np.float32)
    dense[rng.random(dense.shape) < 0.05] = -1          # missing
    score += 0.4 * np.log1p(np.maximum(dense[:, 0], 0)) - 0.3 * np.log1p(np.maximum(dense[:, 1], 0))
    length = rng.integers(0, cfg["history"] + 1, n)
    hist = (cards[0] * rng.random((n, cfg["history"])) ** 3).astype(np.int32) % cards[0]
    hist[np.arange(cfg["history"])[None, :] >= length[:, None]] = -1
    score += 0.8 * (hist[:, 0] % 7 == cat[:, 0] % 7)
    label = (rng.random(n) < 1 / (1 + np.exp(1.8 - score))).astype(np.uint8)
    day = np.sort(rng.integers(0, cfg["days"], n)).astype(np.uint8)
    np.savez(path, cat=cat, dense=dense, hist=hist, label=label, day=day)


def load_log(cfg):
    with np.load(cfg["path"]) as f:
        cols = {k: f[k] for k in f.files}
    last = cols["day"].max()
    parts = {}
    for name, rows in (("train", cols["day"] < last), ("val", cols["day"] == last)):
        parts[name] = {k: v[rows] for k, v in cols.items() if k != "day"}
    return parts


class ClickLog(Dataset):
    def __init__(self, cols, mean, std):
        self.cols = cols
        self.mean, self.std = mean, std

    def __len__(self):
        return len(self.cols["label"])

    def __getitem__(self, i):
        d = self.cols["dense"][i]
        missing = d < 0
        d = (np.log1p(np.maximum(d, 0)) - self.mean) / self.std
        d[missing] = 0.0
        return {
            "dense": torch.tensor(d, dtype=torch.float32),
            "cat": torch.tensor(self.cols["cat"][i], dtype=torch.long),
            "hist": torch.tensor(self.cols["hist"][i] + 1, dtype=torch.long),
            "label": torch.tensor(float(self.cols["label"][i])),
        }


def dense_stats(cols, sample=500_000):
    d = cols["dense"][:sample]
    x = np.log1p(np.maximum(d, 0))
    x[d < 0] = np.nan
    return np.nanmean(x, 0).astype(np.float32), np.nanstd(x, 0).astype(np.float32) + 1e-3
