"""Chains of atoms with a ring now and then, whose targets are counts."""

import json

import numpy as np

rng = np.random.default_rng(0)
with open("small.jsonl", "w") as f:
    for _ in range(120):
        z = [int(a) for a in rng.choice([6, 7, 8, 16], rng.integers(3, 9))]
        bonds = [[k, k + 1, int(rng.integers(1, 4))] for k in range(len(z) - 1)]
        if rng.random() < 0.4:
            bonds.append([0, len(z) - 1, 4])
        y = [float(z.count(6)), float(len(bonds)), sum(z) / 10]
        f.write(json.dumps({"z": z, "bonds": bonds, "y": y}) + "\n")
