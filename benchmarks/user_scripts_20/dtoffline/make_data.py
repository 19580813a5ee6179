"""Trajectories of a point that is pushed towards zero."""

import numpy as np

rng = np.random.default_rng(0)
parts = []
for _ in range(12):
    n, x = rng.integers(15, 40), rng.normal(size=4)
    for t in range(n):
        a = np.clip(-0.5 * x[:2] + 0.1 * rng.normal(size=2), -1, 1)
        parts.append((x.copy(), a, 1 - np.tanh(np.abs(x).mean()), t == n - 1))
        x[:2] += 0.3 * a
names = "observations", "actions", "rewards", "terminals"
np.savez("small.npz", **{k: np.array(v) for k, v in zip(names, zip(*parts))})
