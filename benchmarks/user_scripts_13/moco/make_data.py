"""Procedural stand-in for STL-10: eight kinds of textured shapes, PNG files in three splits."""
import os
import sys

import numpy as np
from PIL import Image, ImageDraw


def draw(rng, kind, size):
    bg = rng.integers(0, 256, 3)
    img = Image.new("RGB", (size, size), tuple(int(v) for v in bg))
    d = ImageDraw.Draw(img)
    for _ in range(4):  # clutter
        x, y = rng.integers(0, size, 2)
        r = int(rng.integers(1, max(2, size // 10)))
        d.ellipse([x - r, y - r, x + r, y + r], fill=tuple(int(v) for v in rng.integers(0, 256, 3)))
    fg = tuple(int(v) for v in (bg + rng.integers(80, 176, 3)) % 256)
    c, r = size / 2 + rng.uniform(-.1, .1, 2) * size, size * rng.uniform(.25, .4)
    phi = rng.uniform(0, 2 * np.pi)
    if kind == 0:
        d.ellipse([c[0] - r, c[1] - r, c[0] + r, c[1] + r], fill=fg)
    elif kind == 1:
        d.ellipse([c[0] - r, c[1] - r, c[0] + r, c[1] + r], outline=fg, width=max(2, size // 12))
    elif kind < 6:
        n = kind + 1  # triangle .. hexagon
        pts = [(c[0] + r * np.cos(phi + 2 * np.pi * i / n), c[1] + r * np.sin(phi + 2 * np.pi * i / n)) for i in range(n)]
        d.polygon(pts, fill=fg)
    else:
        for i in range(4 if kind == 6 else 3):
            a = phi + np.pi * i / (4 if kind == 6 else 1.5)
            d.line([c[0], c[1], c[0] + r * np.cos(a), c[1] + r * np.sin(a)], fill=fg, width=max(2, size // 12))
    arr = np.asarray(img).astype(np.int16) + rng.normal(0, 8, (size, size, 3)).astype(np.int16)
    return Image.fromarray(arr.clip(0, 255).astype(np.uint8))


def write(root, counts, size, seed=0):
    rng = np.random.default_rng(seed)
    for split, n in counts.items():
        os.makedirs(os.path.join(root, split), exist_ok=True)
        for i in range(n):
            kind = int(rng.integers(8))
            draw(rng, kind, size).save(os.path.join(root, split, f"{i:06d}_{kind}.png"))


if __name__ == "__main__":
    write(sys.argv[1] if len(sys.argv) > 1 else "data/shapes", dict(unlabeled=20000, labeled=4000, test=1000), 96)
