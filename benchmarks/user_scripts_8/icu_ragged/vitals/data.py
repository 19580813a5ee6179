"""Ragged ICU stays: irregular, mostly missing vitals, one deterioration label per hour."""
import math
import random
from typing import Dict, List

import numpy as np
import torch
from torch.utils.data import Dataset, Sampler


def simulate_stays(cfg, seed: int) -> List[Dict]:
    rng = np.random.RandomState(seed)
    stays = []
    for sid in range(cfg.num_stays):
        t_len = int(rng.randint(cfg.min_hours, cfg.max_hours + 1))
        severity = rng.randn() * 0.8
        drift = np.cumsum(rng.randn(t_len) * 0.25) + severity
        base = rng.randn(cfg.num_features) * 0.5
        values = base[None] + drift[:, None] * np.linspace(-1, 1, cfg.num_features)[None] + rng.randn(t_len, cfg.num_features) * 0.3
        observed = rng.rand(t_len, cfg.num_features) < rng.uniform(0.15, 0.7, cfg.num_features)[None]
        values[~observed] = np.nan
        label = (np.roll(drift, -2) > 1.0).astype(np.int64)
        stays.append(dict(stay_id=sid, hours=np.cumsum(rng.exponential(1.0, t_len) + 0.1), values=values, labels=label,
                          unit=int(rng.randint(5)), sex=int(rng.randint(3))))
    return stays


def fit_scaler(stays):
    stacked = np.concatenate([s["values"] for s in stays], axis=0)
    return np.nanmean(stacked, axis=0), np.nanstd(stacked, axis=0) + 1e-6


class StayDataset(Dataset):
    def __init__(self, stays, mean, std):
        self.stays = stays
        self.mean = mean
        self.std = std

    def __len__(self):
        return len(self.stays)

    def lengths(self):
        return [len(s["labels"]) for s in self.stays]

    def _impute(self, values, hours):
        """Last observation carried forward, plus time since that observation."""
        t_len, n_feat = values.shape
        filled = np.zeros((t_len, n_feat))
        delta = np.zeros((t_len, n_feat))
        mask = np.zeros((t_len, n_feat))
        for f in range(n_feat):
            last, last_t = 0.0, hours[0]
            for t in range(t_len):
                if not math.isnan(values[t, f]):
                    last, last_t = values[t, f], hours[t]
                    mask[t, f] = 1.0
                filled[t, f] = last
                delta[t, f] = hours[t] - last_t
        return filled, delta, mask

    def __getitem__(self, idx):
        stay = self.stays[idx]
        values = (stay["values"] - self.mean) / self.std
        filled, delta, mask = self._impute(values, stay["hours"])
        return {
            "x": filled.tolist(),
            "delta": np.log1p(delta).tolist(),
            "mask": mask.tolist(),
            "y": stay["labels"].tolist(),
            "static": [stay["unit"], stay["sex"]],
            "stay_id": stay["stay_id"],
        }


def collate_stays(samples):
    # longest first: pack_padded_sequence(enforce_sorted=True) and the ONNX export rely on it
    samples = sorted(samples, key=lambda s: -len(s["y"]))
    max_len = len(samples[0]["y"])
    n_feat = len(samples[0]["x"][0])
    x = torch.zeros(len(samples), max_len, n_feat)
    delta = torch.zeros(len(samples), max_len, n_feat)
    mask = torch.zeros(len(samples), max_len, n_feat)
    y = torch.full((len(samples), max_len), -1.0)
    for i, s in enumerate(samples):
        n = len(s["y"])
        x[i, :n] = torch.tensor(s["x"])
        delta[i, :n] = torch.tensor(s["delta"])
        mask[i, :n] = torch.tensor(s["mask"])
        y[i, :n] = torch.tensor(s["y"]).float()
    lengths = torch.tensor([len(s["y"]) for s in samples])
    static = torch.tensor([s["static"] for s in samples])
    return {"x": x, "delta": delta, "mask": mask, "y": y, "lengths": lengths, "static": static,
            "stay_id": [s["stay_id"] for s in samples]}


class BucketBatchSampler(Sampler):
    """Batches stays of similar length; reshuffles batches every epoch from its own RNG."""

    def __init__(self, lengths, batch_size, seed=0):
        self.lengths = lengths
        self.batch_size = batch_size
        self.rng = random.Random(seed)

    def __iter__(self):
        order = sorted(range(len(self.lengths)), key=lambda i: self.lengths[i] + self.rng.random() * 6)
        batches = [order[i:i + self.batch_size] for i in range(0, len(order), self.batch_size)]
        self.rng.shuffle(batches)
        return iter(batches)

    def __len__(self):
        return math.ceil(len(self.lengths) / self.batch_size)
