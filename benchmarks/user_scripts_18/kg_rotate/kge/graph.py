"""Triples. With --path: train.txt / valid.txt / test.txt, tab separated as in FB15k-237. Else a generated graph."""
import os

import numpy as np


def load(path):
    entity, relation, parts = {}, {}, {}
    for part in ("train", "valid", "test"):
        rows = []
        with open(os.path.join(path, part + ".txt")) as f:
            for line in f:
                h, r, t = line.rstrip("\n").split("\t")
                rows.append((entity.setdefault(h, len(entity)), relation.setdefault(r, len(relation)),
                             entity.setdefault(t, len(entity))))
        parts[part] = rows
    return parts, len(entity), len(relation)


def generate(entities, relations, triples, seed):
    """Entities have hidden phases; a relation rotates them, tails are near neighbours of the rotated head."""
    rng = np.random.default_rng(seed)
    phase = rng.uniform(0, 2 * np.pi, (entities, 3))
    turn = rng.uniform(0, 2 * np.pi, (relations, 3))
    popular = rng.zipf(1.6, entities).clip(max=50).astype(float)
    popular /= popular.sum()
    seen = set()
    while len(seen) < triples:
        h, r = int(rng.choice(entities, p=popular)), int(rng.integers(relations))
        d = np.abs(np.exp(1j * (phase[h] + turn[r])) - np.exp(1j * phase)).sum(1)
        d[h] = np.inf
        near = np.argpartition(d, 4)[:4]
        seen.add((h, r, int(rng.choice(near))))
    rows = sorted(seen)
    rng.shuffle(rows)
    rows = [tuple(int(v) for v in row) for row in rows]
    n = len(rows) // 20
    return {"valid": rows[:n], "test": rows[n:2 * n], "train": rows[2 * n:]}, entities, relations
