"""A corpus of little Lisp-like programs with their values (so brackets and sums can be learnt)."""
import os
import random

import numpy as np

NAMES = "alpha beta gamma delta index total count left right node depth width value".split()


def expression(rng, depth):
    if depth == 0 or rng.random() < 0.3:
        v = rng.randint(0, 9)
        return str(v), v
    a, va = expression(rng, depth - 1)
    b, vb = expression(rng, depth - 1)
    op = rng.choice("+-*")
    return f"({op} {a} {b})", {"+": va + vb, "-": va - vb, "*": va * vb}[op]


def prepare(folder, n_bytes, seed=11):
    """writes train.bin / val.bin"""
    os.makedirs(folder, exist_ok=True)
    rng = random.Random(seed)
    parts, size = [], 0
    while size < n_bytes:
        text, value = expression(rng, 3)
        line = f"(let {rng.choice(NAMES)} {text}) ; {value % 100}\n"
        parts.append(line)
        size += len(line)
    data = np.frombuffer("".join(parts).encode(), dtype=np.uint8)
    cut = int(0.95 * len(data))
    data[:cut].tofile(os.path.join(folder, "train.bin"))
    data[cut:].tofile(os.path.join(folder, "val.bin"))
