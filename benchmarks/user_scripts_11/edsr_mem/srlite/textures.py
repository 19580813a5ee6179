from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw, ImageFilter


def make_picture(rng: np.random.Generator, size: int) -> np.ndarray:
    """facades, blobs and gratings: enough edges to be worth upscaling"""
    base = Image.new("RGB", (size, size), tuple(int(v) for v in rng.integers(30, 220, 3)))
    draw = ImageDraw.Draw(base)
    for _ in range(int(rng.integers(6, 14))):
        x, y = (int(v) for v in rng.integers(0, size, 2))
        w, h = (int(v) for v in rng.integers(size // 12, size // 2, 2))
        color = tuple(int(v) for v in rng.integers(0, 255, 3))
        kind = rng.integers(0, 4)
        if kind == 0:
            draw.ellipse([x, y, x + w, y + h], fill=color)
        elif kind == 1:
            draw.rectangle([x, y, x + w, y + h], fill=color)
        elif kind == 2:
            step = int(rng.integers(4, 12))
            for k in range(x, min(size, x + w), step):
                draw.line([k, y, k + h // 4, y + h], fill=color, width=max(1, step // 3))
        else:
            step = int(rng.integers(8, 20))
            for yy in range(y, min(size, y + h), step):
                for xx in range(x, min(size, x + w), step):
                    draw.rectangle([xx, yy, xx + step // 2, yy + step // 2], fill=color)
    img = np.asarray(base.filter(ImageFilter.GaussianBlur(0.6)), dtype=np.float32)
    img = img + rng.normal(0, 3, (size, size, 1))
    return img.clip(0, 255).astype(np.uint8)


def make_pictures(n: int, size: int, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [make_picture(rng, size) for _ in range(n)]
