"""Hourly loads of six customers with their days and weeks, and a small config.yml."""

from pathlib import Path

import numpy as np

rng = np.random.default_rng(0)
hours, customers = 1100, 6
Path("data").mkdir(exist_ok=True)
time = np.arange(hours)[:, None]
phase, level = rng.uniform(0, 6, customers), 10 ** rng.uniform(1, 4, customers)
load = 2 + np.sin(time * np.pi / 12 + phase) + 0.5 * (time // 24 % 7 < 5)
load = np.maximum(load + rng.normal(0, 0.2, load.shape), 0) * level
lines = ["," + ",".join(f"c{k}" for k in range(customers))]
lines += [f"{t}," + ",".join(f"{v:.3f}" for v in row) for t, row in enumerate(load)]
Path("data/small.csv").write_text("\n".join(lines) + "\n")
Path("data/small.yml").write_text("""\
csv: data/small.csv
context: 48
horizon: 24
stride: 4
quantiles: [0.1, 0.25, 0.5, 0.75, 0.9]
model: {d_model: 32, heads: 4, layers: 2, ff: 64, dropout: 0.1}
train: {batch_size: 16, epochs: 3, lr: 0.001, clip: 1.0, patience: 5, windows_per_series: 200}
seed: 1
""")
