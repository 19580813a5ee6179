"""Aerial tiles as PNG with a JSON file of boxes, and their targets."""
import json
import math
import random
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageEnhance
from torch.utils.data import Dataset

MEAN = np.array([0.36, 0.39, 0.35], np.float32)
STD = np.array([0.21, 0.19, 0.19], np.float32)
COLOURS = [(200, 60, 50), (70, 110, 200), (230, 220, 90), (240, 240, 240), (60, 160, 90)]
MAX_OBJECTS = 64
STRIDE = 4


def draw_tiles(folder, n, size, n_classes, seed):
    folder = Path(folder)
    if (folder / "boxes.json").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(seed)
    boxes = {}
    for i in range(n):
        base = rng.randint(60, 130)
        arr = np.random.RandomState(seed + i).normal(base, 14, (size // 4, size // 4, 3)).clip(0, 255).astype(np.uint8)
        img = Image.fromarray(arr).resize((size, size), Image.BILINEAR)
        d = ImageDraw.Draw(img)
        objs = []
        for _ in range(rng.randint(1, max(2, min(40, size // 16)))):
            c = rng.randrange(n_classes)
            w, h = (rng.uniform(size / 24 + 4, size / 10 + 5) * (1 + 0.3 * c / n_classes) for _ in range(2))
            x, y = rng.uniform(0, size - w), rng.uniform(0, size - h)
            (d.ellipse if c % 2 else d.rectangle)([x, y, x + w, y + h], fill=COLOURS[c % len(COLOURS)])
            objs.append([x, y, x + w, y + h, c])
        name = f"tile_{i:05d}.png"
        img.save(folder / name)
        boxes[name] = objs
    (folder / "boxes.json").write_text(json.dumps(boxes))


def splat(heat, cx, cy, radius):
    r = int(radius)
    g = np.exp(-(np.arange(-r, r + 1) ** 2) / (2 * ((2 * r + 1) / 6) ** 2))
    g = np.outer(g, g).astype(np.float32)
    h, w = heat.shape
    y0, y1, x0, x1 = max(0, cy - r), min(h, cy + r + 1), max(0, cx - r), min(w, cx + r + 1)
    part = g[y0 - cy + r:y1 - cy + r, x0 - cx + r:x1 - cx + r]
    np.maximum(heat[y0:y1, x0:x1], part, out=heat[y0:y1, x0:x1])


class Tiles(Dataset):
    def __init__(self, folder, n_classes, augment):
        self.folder = Path(folder)
        self.boxes = json.loads((self.folder / "boxes.json").read_text())
        self.names = sorted(self.boxes)
        self.n_classes, self.augment = n_classes, augment

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        img = Image.open(self.folder / self.names[i]).convert("RGB")
        boxes = np.array(self.boxes[self.names[i]], np.float32)
        if self.augment:
            for kind in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
                img = kind(img).enhance(random.uniform(0.7, 1.3))
        img = np.asarray(img)
        size = img.shape[0]
        if self.augment and random.random() < 0.5:
            img = img[:, ::-1]
            boxes[:, [0, 2]] = size - boxes[:, [2, 0]]
        if self.augment and random.random() < 0.5:
            img = img[::-1]
            boxes[:, [1, 3]] = size - boxes[:, [3, 1]]
        x = ((img / np.float32(255) - MEAN) / STD).transpose(2, 0, 1)

        m = size // STRIDE
        heat = np.zeros((self.n_classes, m, m), np.float32)
        index, mask = np.zeros(MAX_OBJECTS, np.int64), np.zeros(MAX_OBJECTS, np.float32)
        wh, off = np.zeros((MAX_OBJECTS, 2), np.float32), np.zeros((MAX_OBJECTS, 2), np.float32)
        truth = np.full((MAX_OBJECTS, 5), -1, np.float32)
        for k, (x0, y0, x1, y1, c) in enumerate(boxes[:MAX_OBJECTS]):
            x0, y0, x1, y1 = x0 / STRIDE, y0 / STRIDE, x1 / STRIDE, y1 / STRIDE
            cx, cy = (x0 + x1) / 2, (y0 + y1) / 2
            ix, iy = min(int(cx), m - 1), min(int(cy), m - 1)
            splat(heat[int(c)], ix, iy, max(1, math.sqrt((x1 - x0) * (y1 - y0)) / 3))
            index[k], mask[k] = iy * m + ix, 1
            wh[k], off[k] = (x1 - x0, y1 - y0), (cx - ix, cy - iy)
            truth[k] = x0, y0, x1, y1, c
        return {"image": torch.from_numpy(np.ascontiguousarray(x)), "heat": torch.from_numpy(heat),
                "index": torch.from_numpy(index), "mask": torch.from_numpy(mask), "size": torch.from_numpy(wh),
                "shift": torch.from_numpy(off), "boxes": torch.from_numpy(truth)}
