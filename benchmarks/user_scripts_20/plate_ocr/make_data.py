"""Plates with one pattern of columns for each letter, of several widths."""

from pathlib import Path

import numpy as np
from PIL import Image

CHARS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ-"
rng = np.random.default_rng(0)
letters = rng.integers(0, 255, (len(CHARS), 8)).astype(np.uint8)
Path("data/img").mkdir(parents=True, exist_ok=True)
for split, plates in (("train", 20), ("valid", 8), ("test", 3)):
    rows = []
    for k in range(plates):
        codes = rng.integers(0, len(CHARS), rng.integers(3, 6))
        line = np.concatenate([np.repeat(letters[c], 3) for c in codes])
        picture = np.repeat(line[None], 48, 0) // 2 + rng.integers(0, 60, (48, len(line)))
        Image.fromarray(picture.astype(np.uint8)).save(f"data/img/{split}{k}.png")
        rows.append(f"{split}{k}.png\t" + "".join(CHARS[c] for c in codes))
    Path(f"data/{split}.tsv").write_text("\n".join(rows) + "\n")
