"""Molecules without a chemistry toolkit: random but valence-correct heavy-atom graphs,
written once to a JSON-lines file in the format that our exporter uses:
    {"atoms": [[element, charge, n_h, aromatic], ...], "bonds": [[i, j, order], ...], "y": [..., null, ...]}
"""
import json
import os
import random

ELEMENTS = ['C', 'N', 'O', 'F', 'S', 'Cl']
VALENCE = {'C': 4, 'N': 3, 'O': 2, 'F': 1, 'S': 2, 'Cl': 1}
WEIGHT = [0.62, 0.12, 0.14, 0.04, 0.05, 0.03]
LOGP = {'C': 0.35, 'N': -0.8, 'O': -0.7, 'F': 0.4, 'S': 0.6, 'Cl': 0.7}


def random_molecule(rng, lo, hi):
    n = rng.randint(lo, hi)
    el, free, bonds = ['C'], [4], []
    while len(el) < n:
        open_ = [i for i in range(len(el)) if free[i] > 0]
        if not open_:
            break
        i = rng.choice(open_)
        e = rng.choices(ELEMENTS, WEIGHT)[0]
        order = 1
        if VALENCE[e] >= 2 and free[i] >= 2 and rng.random() < 0.15:
            order = 2
        el.append(e)
        free.append(VALENCE[e] - order)
        free[i] -= order
        bonds.append([i, len(el) - 1, order])
    rings = 0
    for _ in range(rng.randint(0, 3)):
        open_ = [i for i in range(len(el)) if free[i] > 0]
        if len(open_) < 2:
            break
        i, j = rng.sample(open_, 2)
        if not any({i, j} == {a, b} for a, b, _ in bonds):
            bonds.append([i, j, 1])
            free[i] -= 1
            free[j] -= 1
            rings += 1
    atoms = [[el[i], 0, free[i], 0] for i in range(len(el))]
    hetero = sum(e in 'NO' for e in el)
    donors = sum(e in 'NO' and free[i] > 0 for i, e in enumerate(el))
    logp = sum(LOGP[e] for e in el) - 0.3 * donors + 0.2 * rings + rng.gauss(0, 0.1)
    logs = 0.8 - 0.6 * logp - 0.03 * len(el) + 0.1 * hetero + rng.gauss(0, 0.2)
    pka = 7 + 1.5 * donors / len(el) * 10 - 0.4 * hetero + rng.gauss(0, 0.2)
    y = [round(v, 4) if rng.random() > 0.2 else None for v in (logp, logs, pka)]
    return {'atoms': atoms, 'bonds': bonds, 'y': y}


def write_molecules(path, n, lo, hi, seed=0):
    if os.path.exists(path):
        return
    rng = random.Random(seed)
    with open(path, 'w') as f:
        for _ in range(n):
            f.write(json.dumps(random_molecule(rng, lo, hi)) + '\n')


def read_molecules(path):
    with open(path) as f:
        return [json.loads(line) for line in f]
