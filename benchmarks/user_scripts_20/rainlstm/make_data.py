"""Frames with a cloud that moves, one gap between two of them; and a small configuration."""

from pathlib import Path

import numpy as np

rng = np.random.default_rng(0)
n, side = 120, 16
y, x = np.mgrid[:side, :side]
frames = [
    200 * np.exp(-(((x - t * 0.7) % side - 8) ** 2 + (y - 8) ** 2) / 16) + rng.integers(0, 20, (side, side))
    for t in range(n)
]
times = 300 * np.arange(n) + np.where(np.arange(n) > 60, 600, 0)
Path("data").mkdir(exist_ok=True)
np.savez("data/small.npz", frames=np.array(frames).astype(np.uint8), times=times)
Path("data/small.yaml").write_text("""\
data: {archive: data/small.npz, n_in: 3, n_out: 4, val_fraction: 0.25}
model: {hidden: [8, 8], kernel: 3}
train: {batch_size: 4, epochs: 3, lr: 0.003, teacher_start: 1.0, teacher_end: 0.0, seed: 11, out: out}
""")
