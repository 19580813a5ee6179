"""Words of a small language, drawn again and again, as train.bin and val.bin."""

from pathlib import Path

import numpy as np

rng = np.random.default_rng(0)
words = [rng.integers(0, 256, rng.integers(2, 7)) for _ in range(60)]
out = Path("data")
out.mkdir(exist_ok=True)
for split, count in (("train", 6000), ("val", 800)):
    tokens = np.concatenate([words[k] for k in rng.zipf(1.3, count) % 60])
    tokens.astype(np.uint16).tofile(out / f"{split}.bin")
