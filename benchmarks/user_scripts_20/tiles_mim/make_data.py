"""Tiles of four bands with a slope and noise, the probe's by class; and a small configuration."""

from pathlib import Path

import numpy as np

rng = np.random.default_rng(0)


def tiles(n, tilt):
    ramp = np.linspace(0, 1, 16)
    base = 2000 + 3000 * tilt[:, None, None, None] * ramp[None, None, :, None]
    return (base + rng.integers(0, 500, (n, 4, 16, 16))).astype(np.uint16)


Path("data").mkdir(exist_ok=True)
np.save("data/tiles.npy", tiles(96, rng.random(96)))
y = rng.integers(0, 3, 40)
np.savez("data/probe.npz", x=tiles(40, y / 2), y=y)
Path("data/small.yml").write_text("""\
data: {train: data/tiles.npy, probe: data/probe.npz}
model: {img: 16, patch: 4, chans: 4, dim: 16, depth: 2, heads: 2, dec_dim: 8, dec_depth: 1, mask_ratio: 0.7}
optim: {batch: 8, lr: 0.001, wd: 0.05, warmup: 5, epochs: 4}
run: {seed: 0, device: cuda, out: out, probe_every: 2, save_every: 10}
""")
