"""Synthetic abdominal CT: ellipsoid body, liver, a few lesions.  One .npz per patient."""
import os

import numpy as np


def _blob(shape, center, radii):
    zz, yy, xx = np.ogrid[:shape[0], :shape[1], :shape[2]]
    return (((zz - center[0]) / radii[0]) ** 2
            + ((yy - center[1]) / radii[1]) ** 2
            + ((xx - center[2]) / radii[2]) ** 2) <= 1.0


def make_patient(rng, depth, size):
    # hospitals export slightly different matrix sizes
    h = size + int(rng.integers(0, 3)) * 16
    w = size + int(rng.integers(0, 3)) * 16
    shape = (depth, h, w)
    vol = np.full(shape, -1000.0, dtype=np.float32)
    seg = np.zeros(shape, dtype=np.uint8)
    body = _blob(shape, (depth / 2, h / 2, w / 2), (depth, h * 0.42, w * 0.46))
    vol[body] = 20.0
    c = (depth / 2 + rng.normal(0, 1), h * 0.45 + rng.normal(0, 4), w * 0.38 + rng.normal(0, 4))
    liver = _blob(shape, c, (depth * 0.4, h * 0.2, w * 0.22)) & body
    vol[liver] = 110.0
    seg[liver] = 1
    for _ in range(int(rng.integers(1, 4))):
        lc = (c[0] + rng.normal(0, depth * 0.1), c[1] + rng.normal(0, h * 0.07), c[2] + rng.normal(0, w * 0.07))
        les = _blob(shape, lc, (depth * 0.12 + 1, h * 0.05 + 1, w * 0.05 + 1)) & liver
        vol[les] = 60.0
        seg[les] = 2
    vol += rng.normal(0, 15, size=shape).astype(np.float32)
    return vol.astype(np.int16), seg


def ensure_dataset(root, n_train, n_val, depth, size, seed=7):
    for split, n in (("train", n_train), ("val", n_val)):
        folder = os.path.join(root, split)
        os.makedirs(folder, exist_ok=True)
        for i in range(n):
            path = os.path.join(folder, f"patient_{i:03d}.npz")
            if os.path.exists(path):
                continue
            rng = np.random.default_rng(seed + 1000 * (split == "val") + i)
            vol, seg = make_patient(rng, depth, size)
            np.savez_compressed(path, volume=vol, label=seg)
