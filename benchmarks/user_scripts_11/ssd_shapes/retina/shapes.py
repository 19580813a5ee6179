"""pictures with a few discs, boxes, triangles and crosses on a noisy ground, with boxes (x1, y1, x2, y2, class)"""
import numpy as np
from PIL import Image, ImageDraw

CLASSES = ['disc', 'box', 'triangle', 'cross']


def draw_one(rng, side):
    w = side if rng.rand() < 0.5 else rng.randint(int(side * 0.75), side + 1)
    h = rng.randint(int(side * 0.7), side + 1)
    ground = rng.randint(60, 190, size=3)
    noise = rng.randint(-25, 25, size=(h, w, 1)) + ground
    img = Image.fromarray(noise.clip(0, 255).astype(np.uint8))
    d = ImageDraw.Draw(img)
    boxes = []
    for _ in range(rng.randint(1, 5)):
        s = rng.randint(side // 4, side // 2)
        x, y = rng.randint(0, w - s), rng.randint(0, h - s)
        c = rng.randint(len(CLASSES))
        col = tuple(int(v) for v in (ground + rng.choice([-1, 1]) * rng.randint(45, 80, size=3)).clip(0, 255))
        if c == 0:
            d.ellipse([x, y, x + s, y + s], fill=col)
        elif c == 1:
            d.rectangle([x, y, x + s, y + s], fill=col)
        elif c == 2:
            d.polygon([(x, y + s), (x + s, y + s), (x + s // 2, y)], fill=col)
        else:
            t = max(2, s // 5)
            d.rectangle([x + s // 2 - t, y, x + s // 2 + t, y + s], fill=col)
            d.rectangle([x, y + s // 2 - t, x + s, y + s // 2 + t], fill=col)
        boxes.append([x, y, x + s, y + s, c])
    return np.asarray(img), np.array(boxes, dtype=np.float64)


def make_shapes(path, n, side, seed=99):
    rng = np.random.RandomState(seed)
    images = np.empty(n, dtype=object)
    boxes = np.empty(n, dtype=object)
    for i in range(n):
        images[i], boxes[i] = draw_one(rng, side)
    np.savez(path, images=images, boxes=boxes)
