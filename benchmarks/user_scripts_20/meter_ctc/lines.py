from __future__ import annotations

import json
import pathlib
import random

import numpy as np
import torch
from PIL import Image, ImageEnhance
from torch.utils.data import Dataset


class LineDataset(Dataset):
    """labels.json: {"0001.png": "00342.7m", ...}; images are cropped, deskewed meter windows."""

    def __init__(self, root: str, split: str, alphabet: str, height: int, max_width: int):
        self.dir = pathlib.Path(root) / split
        labels = json.loads((self.dir / 'labels.json').read_text())
        self.items = sorted(labels.items())
        self.code = {ch: i + 1 for i, ch in enumerate(alphabet)}
        self.height, self.max_width = height, max_width
        self.augment = split == 'train'

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, idx: int):
        name, text = self.items[idx]
        img = Image.open(self.dir / name).convert('L')
        if self.augment:
            if random.random() < 0.5:
                img = ImageEnhance.Contrast(img).enhance(random.uniform(0.5, 1.6))
            if random.random() < 0.3:
                img = img.rotate(random.uniform(-3, 3), resample=Image.BILINEAR, expand=False, fillcolor=128)
        w = max(32, min(self.max_width, round(img.width * self.height / img.height)))
        img = img.resize((w, self.height), Image.BILINEAR)
        x = torch.from_numpy(np.array(img)).float().div(127.5).sub(1.0).unsqueeze(0)
        y = torch.tensor([self.code[c] for c in text], dtype=torch.long)
        return x, y, text


def collate(batch):
    """Pad to the widest line of this batch. The padding is -1 (black)."""
    xs, ys, texts = zip(*batch)
    w = max(x.shape[2] for x in xs)
    out = torch.full((len(xs), 1, xs[0].shape[1], w), -1.0)
    for i, x in enumerate(xs):
        out[i, :, :, : x.shape[2]] = x
    widths = torch.tensor([x.shape[2] for x in xs])
    return out, widths, torch.cat(ys), torch.tensor([len(y) for y in ys]), list(texts)
