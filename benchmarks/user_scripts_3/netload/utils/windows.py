import numpy as np
import torch
from torch.utils.data import Dataset


def make_series(n_days, n_sites, seed):
    """Hourly load of some substations: daily and weekly shape, temperature, drift."""
    rng = np.random.default_rng(seed)
    t = np.arange(n_days * 24)
    hour, dow = t % 24, (t // 24) % 7
    sites = []
    for s in range(n_sites):
        base = 40 + 20 * rng.random()
        day = 1 + 0.3 * np.sin((hour - 7 - rng.random()) / 24 * 2 * np.pi) + 0.1 * np.sin(hour / 12 * 2 * np.pi)
        week = np.where(dow >= 5, 0.8, 1.0)
        drift = np.cumsum(rng.normal(0, 0.05, len(t)))
        sites.append(base * day * week + drift + rng.normal(0, 1.0, len(t)))
    cal = np.stack([np.sin(2 * np.pi * hour / 24), np.cos(2 * np.pi * hour / 24), dow >= 5], 1)
    return np.stack(sites).astype(np.float32), cal.astype(np.float32)


class Windows(Dataset):
    """past, past calendar, future calendar, future.  Windows are views of ONE float32 array."""
    def __init__(self, series, cal, start, end, lookback, horizon, stride):
        self.series, self.cal = series, cal
        self.L, self.H = lookback, horizon
        self.index = [(s, t) for s in range(len(series)) for t in range(start, end - lookback - horizon, stride)]

    def __len__(self):
        return len(self.index)

    def __getitem__(self, k):
        s, t = self.index[k]
        y = self.series[s, t:t + self.L + self.H]
        c = self.cal[t:t + self.L + self.H]
        return (torch.from_numpy(y[:self.L]), torch.from_numpy(c[:self.L]),
                torch.from_numpy(c[self.L:]), torch.from_numpy(y[self.L:]))
