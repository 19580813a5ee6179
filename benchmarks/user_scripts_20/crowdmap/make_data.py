"""Pictures with bright heads, of several sizes."""

from pathlib import Path

import numpy as np
from PIL import Image

rng = np.random.default_rng(0)
for split, pictures in (("train", 8), ("test", 2)):
    for kind in ("images", "points"):
        (Path("data") / split / kind).mkdir(parents=True, exist_ok=True)
    for k in range(pictures):
        w, h = (int(n) for n in rng.integers(44, 72, 2))
        picture = rng.integers(0, 90, (h, w, 3)).astype(np.uint8)
        heads = rng.random((int(rng.integers(3, 12)), 2)) * (w, h)
        for x, y in heads.astype(int):
            picture[max(0, y - 1) : y + 2, max(0, x - 1) : x + 2] = 240
        Image.fromarray(picture).save(f"data/{split}/images/IMG_{k}.jpg")
        np.save(f"data/{split}/points/IMG_{k}.npy", heads)
