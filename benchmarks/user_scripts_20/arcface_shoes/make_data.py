"""Photos of shoes: a stripe of one colour and place for each SKU, with noise."""

import csv
from pathlib import Path

import numpy as np
from PIL import Image

rng = np.random.default_rng(0)
Path("data/img").mkdir(parents=True, exist_ok=True)
rows = []
for sku in range(12):
    colour, at = rng.integers(0, 255, 3), rng.integers(0, 30)
    split = ["train"] * 7 if sku < 8 else ["query"] * 2 + ["gallery"] * 4
    for k, part in enumerate(split):
        photo = rng.integers(0, 90, (40, 40, 3)).astype(np.uint8)
        photo[at : at + 10] = colour
        Image.fromarray(photo).save(f"data/img/{sku}_{k}.png")
        rows.append({"path": f"img/{sku}_{k}.png", "sku": f"s{sku:02d}", "split": part})
with open("data/catalogue.csv", "w", newline="") as f:
    table = csv.DictWriter(f, ["path", "sku", "split"])
    table.writeheader()
    table.writerows(rows)
