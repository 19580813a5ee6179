import os

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch.utils.data import Dataset


def draw_glyph(rng, size):
    """a few thick strokes and one filled shape on a coloured ground, drawn twice as large and reduced"""
    s = size * 2
    bg = tuple(int(c) for c in rng.randint(0, 80, 3))
    fg = tuple(int(c) for c in rng.randint(150, 256, 3))
    img = Image.new('RGB', (s, s), bg)
    d = ImageDraw.Draw(img)
    for _ in range(rng.randint(2, 5)):
        pts = [tuple(int(v) for v in rng.randint(s // 6, s - s // 6, 2)) for _ in range(2)]
        d.line(pts, fill=fg, width=max(2, s // 12))
    cx, cy = (int(v) for v in rng.randint(s // 4, s - s // 4, 2))
    r = int(rng.randint(s // 12, s // 6))
    if rng.rand() < 0.5:
        d.ellipse([cx - r, cy - r, cx + r, cy + r], fill=fg)
    else:
        d.rectangle([cx - r, cy - r, cx + r, cy + r], fill=fg)
    return np.asarray(img.resize((size, size), Image.BILINEAR))


def ensure_glyphs(path, n, size, seed=99):
    if os.path.exists(path):
        return
    rng = np.random.RandomState(seed)
    np.save(path, np.stack([draw_glyph(rng, size) for _ in range(n)]))


class GlyphDataset(Dataset):
    def __init__(self, path):
        self.images = np.load(path)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        img = self.images[index].astype(np.float32)
        if torch.rand(1).item() < 0.5:
            img = img[:, ::-1]
        img = (img - 127.5) / 127.5
        return torch.from_numpy(np.ascontiguousarray(img.transpose(2, 0, 1)))


def save_grid(images, path, nrow=5):
    """images: (N, 3, H, W) in [-1, 1]"""
    arr = ((images.cpu().numpy() + 1) * 127.5).clip(0, 255).astype(np.uint8)
    n, _, h, w = arr.shape
    rows = (n + nrow - 1) // nrow
    grid = Image.new('RGB', (nrow * w, rows * h))
    for k in range(n):
        grid.paste(Image.fromarray(arr[k].transpose(1, 2, 0)), ((k % nrow) * w, (k // nrow) * h))
    grid.save(path)
