import csv
import os
from datetime import datetime, timedelta

import numpy as np


def make_csv(path, n_rows, seed=7):
    """hourly sensors of a plant: daily and weekly cycles, a slow drift, AR noise and a few outages"""
    rng = np.random.RandomState(seed)
    t = np.arange(n_rows)
    cols = []
    common = np.cumsum(rng.randn(n_rows)) * 0.02
    for k in range(7):
        noise = np.zeros(n_rows)
        e = rng.randn(n_rows) * 0.4
        for i in range(1, n_rows):
            noise[i] = 0.9 * noise[i - 1] + e[i]
        x = (3 + k) * np.sin(2 * np.pi * (t + 3 * k) / 24) + 1.5 * np.sin(2 * np.pi * t / 168 + k)
        x = x + noise + common * (k + 1) * 0.3 + 10 * k
        cols.append(x)
    data = np.stack(cols, 1)
    for start in rng.randint(0, n_rows - 12, size=n_rows // 2000 + 1):
        data[start:start + 6] *= 0.5
    t0 = datetime(2016, 7, 1)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, 'w', newline='') as f:
        w = csv.writer(f)
        w.writerow(['date', 'HUFL', 'HULL', 'MUFL', 'MULL', 'LUFL', 'LULL', 'OT'])
        for i in range(n_rows):
            w.writerow([(t0 + timedelta(hours=i)).strftime('%Y-%m-%d %H:%M:%S')] + ['%.4f' % v for v in data[i]])
