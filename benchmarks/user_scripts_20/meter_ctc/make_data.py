"""Lines with one pattern of columns for each digit, of several widths."""

import json
from pathlib import Path

import numpy as np
from PIL import Image

rng = np.random.default_rng(0)
digits = rng.integers(0, 255, (13, 8)).astype(np.uint8)
for split, lines in (("train", 24), ("val", 8)):
    folder = Path("data") / split
    folder.mkdir(parents=True, exist_ok=True)
    labels = {}
    for k in range(lines):
        codes = rng.integers(0, 13, rng.integers(3, 6))
        line = np.concatenate([np.repeat(digits[c], 2) for c in codes])
        picture = np.repeat(line[None], 32, 0) // 2 + rng.integers(0, 60, (32, len(line)))
        Image.fromarray(picture.astype(np.uint8)).save(folder / f"{k:04d}.png")
        labels[f"{k:04d}.png"] = "".join("0123456789.-m"[c] for c in codes)
    (folder / "labels.json").write_text(json.dumps(labels))
