"""Ten kinds of small pictures: gratings, checks, rings, dots, ... in random colours, sizes and places."""
import numpy as np


def render(rng: np.random.Generator, label: int, size: int) -> np.ndarray:
    yy, xx = np.mgrid[0:size, 0:size] / size
    a = rng.uniform(-0.4, 0.4)
    u, v = xx * np.cos(a) + yy * np.sin(a), -xx * np.sin(a) + yy * np.cos(a)
    f = rng.uniform(3, 6)
    ph = rng.uniform(0, 2 * np.pi, 2)
    r = np.hypot(xx - rng.uniform(0.3, 0.7), yy - rng.uniform(0.3, 0.7))
    if label == 0:
        m = np.sin(2 * np.pi * f * u + ph[0]) > 0
    elif label == 1:
        m = np.sin(2 * np.pi * f * v + ph[0]) > 0
    elif label == 2:
        m = (np.sin(2 * np.pi * f * u + ph[0]) > 0) ^ (np.sin(2 * np.pi * f * v + ph[1]) > 0)
    elif label == 3:
        m = np.sin(2 * np.pi * f * 1.5 * r + ph[0]) > 0
    elif label == 4:
        m = (np.sin(2 * np.pi * f * u + ph[0]) > 0.4) & (np.sin(2 * np.pi * f * v + ph[1]) > 0.4)
    elif label == 5:
        m = r < rng.uniform(0.15, 0.35)
    elif label == 6:
        m = np.maximum(abs(u - 0.5), abs(v - 0.4)) < rng.uniform(0.15, 0.3)
    elif label == 7:
        m = (abs(u - 0.5) < 0.08) | (abs(v - 0.4) < 0.08)
    elif label == 8:
        m = rng.random((size, size)) < rng.uniform(0.3, 0.7)
    else:
        m = np.sin(2 * np.pi * f * (u + 0.15 * np.sin(2 * np.pi * f * v)) + ph[0]) > 0
    c0, c1 = rng.uniform(20, 235, 3), rng.uniform(20, 235, 3)
    img = np.where(m[..., None], c0, c1) + rng.normal(0, 22, (size, size, 3))
    return img.clip(0, 255).astype(np.uint8)


def make_split(n: int, size: int, num_classes: int, seed: int):
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % num_classes
    rng.shuffle(labels)
    return np.stack([render(rng, int(y), size) for y in labels]), labels
