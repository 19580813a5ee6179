from typing import List, Tuple

import numpy as np
import torch
from torch.utils.data import Dataset


def load_csv(path: str) -> np.ndarray:
    """hours x series; first row header, first column timestamp"""
    rows: List[List[float]] = []
    with open(path) as f:
        next(f)
        for line in f:
            rows.append([float(v) if v else 0.0 for v in line.rstrip("\n").split(",")[1:]])
    return np.array(rows, dtype=np.float64)


class Windows(Dataset):
    """(series, start) windows in the interval [lo, hi) of the time axis."""

    def __init__(self, values: np.ndarray, lo: int, hi: int, context: int, horizon: int, stride: int):
        self.series = values.T.tolist()
        self.context, self.horizon = context, horizon
        starts = range(lo, hi - context - horizon, stride)
        self.index: List[Tuple[int, int]] = [(s, t) for s in range(len(self.series)) for t in starts]

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, i: int):
        s, t = self.index[i]
        past = torch.tensor(self.series[s][t:t + self.context])
        future = torch.tensor(self.series[s][t + self.context:t + self.context + self.horizon])
        hours = torch.tensor([(h % 24, (h // 24) % 7) for h in range(t, t + self.context + self.horizon)])
        return past, future, hours, s
