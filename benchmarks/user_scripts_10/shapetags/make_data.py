"""Draws a folder of PNGs with coloured shapes and writes labels.csv (one row per image, tags separated by |)."""
import csv
import os

import numpy as np
from PIL import Image, ImageDraw

SHAPES = ['circle', 'square', 'triangle', 'cross']
COLORS = {
    'red': (214, 48, 49), 'green': (39, 174, 96), 'blue': (41, 128, 185),
    'yellow': (241, 196, 15), 'purple': (142, 68, 173),
}


def draw_shape(d, shape, color, cx, cy, r, outline):
    line = (20, 20, 20) if outline else None
    if shape == 'circle':
        d.ellipse([cx - r, cy - r, cx + r, cy + r], fill=color, outline=line)
    elif shape == 'square':
        d.rectangle([cx - r, cy - r, cx + r, cy + r], fill=color, outline=line)
    elif shape == 'triangle':
        d.polygon([(cx, cy - r), (cx - r, cy + r), (cx + r, cy + r)], fill=color, outline=line)
    else:
        w = max(1, r // 3)
        d.rectangle([cx - r, cy - w, cx + r, cy + w], fill=color, outline=line)
        d.rectangle([cx - w, cy - r, cx + w, cy + r], fill=color, outline=line)


def make_image(rng, size):
    tags = set()
    bg = tuple(int(v) for v in rng.randint(120, 256, size=3))
    img = Image.new('RGB', (size, size), bg)
    d = ImageDraw.Draw(img)
    if rng.rand() < 0.3:
        tags.add('stripes')
        for x in range(0, size, max(4, size // 12)):
            d.line([(x, 0), (x, size)], fill=(90, 90, 90), width=max(1, size // 64))
    outline = rng.rand() < 0.4
    if outline:
        tags.add('outline')
    for _ in range(rng.randint(1, 4)):
        shape = SHAPES[rng.randint(len(SHAPES))]
        cname = sorted(COLORS)[rng.randint(len(COLORS))]
        r = int(rng.randint(size // 10, size // 5))
        cx, cy = (int(v) for v in rng.randint(r, size - r, size=2))
        draw_shape(d, shape, COLORS[cname], cx, cy, r, outline)
        tags.update([shape, cname])
    if rng.rand() < 0.25:
        tags.add('noisy')
        arr = np.asarray(img).astype(np.float32) + rng.randn(size, size, 3) * 25
        img = Image.fromarray(arr.clip(0, 255).astype(np.uint8))
    return img, sorted(tags)


def make_dataset(root, n_images, size, seed=1234):
    rng = np.random.RandomState(seed)
    os.makedirs(os.path.join(root, 'images'), exist_ok=True)
    with open(os.path.join(root, 'labels.csv'), 'w', newline='') as f:
        writer = csv.writer(f)
        writer.writerow(['image', 'tags', 'split'])
        for i in range(n_images):
            img, tags = make_image(rng, size)
            name = 'img_%06d.png' % i
            img.save(os.path.join(root, 'images', name))
            writer.writerow([name, '|'.join(tags), 'val' if i % 5 == 0 else 'train'])
