"""Bright ellipses on a noisy ground and their masks, of two sizes."""

from pathlib import Path

import numpy as np
from PIL import Image

rng = np.random.default_rng(0)
root = Path("data")
for part in ("images", "masks"):
    (root / part).mkdir(parents=True, exist_ok=True)
for k in range(48):
    height, width = (96, 128) if k % 2 else (120, 100)
    y, x = np.mgrid[:height, :width]
    a, b = rng.uniform(10, 30, 2)
    inside = ((y - height * rng.uniform(0.3, 0.7)) / a) ** 2
    inside = inside + ((x - width * rng.uniform(0.3, 0.7)) / b) ** 2 < 1
    ground = rng.normal((140, 60, 50), 15, (height, width, 3))
    image = np.clip(ground + inside[..., None] * 60, 0, 255).astype(np.uint8)
    Image.fromarray(image).save(root / "images" / f"{k:03d}.jpg")
    Image.fromarray(inside.astype(np.uint8) * 255).save(root / "masks" / f"{k:03d}.jpg")
