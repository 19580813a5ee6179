"""Molecules as clouds of atoms, whose properties are sums over pairs that are near."""

import numpy as np

rng = np.random.default_rng(0)
sizes = rng.integers(3, 9, 96)
z = rng.choice([1, 6, 7, 8, 9], sizes.sum())
pos = rng.normal(0, 1.6, (sizes.sum(), 3))
y, at = [], 0
for n in sizes:
    apart = np.linalg.norm(pos[at : at + n, None] - pos[None, at : at + n], axis=-1)
    y.append([z[at : at + n].sum(), np.exp(-apart).sum(), n])
    at += n
np.savez("small.npz", z=z, pos=pos, n_atoms=sizes, y=np.array(y))
