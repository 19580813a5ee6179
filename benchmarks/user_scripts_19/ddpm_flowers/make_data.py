"""Round flowers of some colours, as JPEG files in two folders."""

from pathlib import Path

import numpy as np
from PIL import Image

rng = np.random.default_rng(0)
for k in range(96):
    folder = Path("data") / f"kind{k % 2}"
    folder.mkdir(parents=True, exist_ok=True)
    y, x = np.mgrid[:24, : 24 + 4 * (k % 3)]
    angle, radius = np.arctan2(y - 12, x - 12), np.hypot(y - 12, x - 12)
    petals = radius < 7 + 3 * np.cos((4 + k % 4) * angle + rng.uniform(0, 6))
    image = np.full((*y.shape, 3), (30, 110, 40)) + rng.normal(0, 8, (*y.shape, 3))
    image[petals] = rng.uniform(120, 255, 3)
    Image.fromarray(np.clip(image, 0, 255).astype(np.uint8)).save(folder / f"{k:03d}.jpg")
