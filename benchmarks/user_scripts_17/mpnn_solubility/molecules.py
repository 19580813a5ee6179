"""Toy molecules with a synthetic solubility target.

The real data set is under licence; this generator follows its size statistics
(8-40 heavy atoms, trees with a few rings).  Molecules are stored as text, one per
line:   SYMBOLS|i-j:order,i-j:order,...|target
"""
import os

import numpy as np

ELEMENTS = ["C", "N", "O", "F", "S", "P", "L", "B"]      # L: Cl, B: Br
FREQ = np.array([0.70, 0.10, 0.11, 0.02, 0.03, 0.01, 0.02, 0.01])
POLARITY = np.array([-0.30, 0.55, 0.80, 0.10, 0.05, 0.40, -0.20, -0.25])


def random_molecule(rng):
    n = int(rng.integers(8, 41))
    atoms = rng.choice(len(ELEMENTS), size=n, p=FREQ / FREQ.sum())
    bonds = {}
    for i in range(1, n):
        j = int(rng.integers(max(0, i - 4), i))
        bonds[(j, i)] = int(rng.choice([1, 1, 1, 2, 3], p=[0.3, 0.3, 0.2, 0.17, 0.03]))
    for _ in range(int(rng.integers(0, 4))):
        i, j = sorted(rng.choice(n, size=2, replace=False).tolist())
        if 3 <= j - i <= 6:
            bonds[(i, j)] = 1
    degree = np.zeros(n)
    for i, j in bonds:
        degree[i] += 1
        degree[j] += 1
    y = (POLARITY[atoms] / degree).sum() - 0.04 * n + 0.1 * rng.normal()
    text = ",".join(f"{i}-{j}:{o}" for (i, j), o in bonds.items())
    return f"{''.join(ELEMENTS[a] for a in atoms)}|{text}|{y:.5f}"


def ensure_file(path, n, seed):
    if os.path.exists(path):
        return
    rng = np.random.default_rng(seed)
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w") as f:
        for _ in range(n):
            f.write(random_molecule(rng) + "\n")
