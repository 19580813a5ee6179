"""Omniglot-like alphabets: every character is a few random strokes, every drawer adds jitter."""
import numpy as np
import torch
from PIL import Image, ImageDraw


def draw_characters(n_chars, n_drawers, size, seed):
    rng = np.random.RandomState(seed)
    out = np.zeros((n_chars, n_drawers, size, size), dtype=np.uint8)
    big = size * 2
    for c in range(n_chars):
        strokes = [rng.uniform(0.15, 0.85, (rng.randint(3, 5), 2)) for _ in range(rng.randint(1, 4))]
        for k in range(n_drawers):
            img = Image.new('L', (big, big), 0)
            d = ImageDraw.Draw(img)
            shift = rng.uniform(-0.05, 0.05, 2)
            for s in strokes:
                p = (s + shift + rng.normal(0, 0.02, s.shape)) * big
                d.line([tuple(v) for v in p], fill=255, width=max(2, big // 14))
            out[c, k] = np.array(img.resize((size, size), Image.BILINEAR))
    return out


class TaskSampler(object):
    """N-way tasks; rotated characters count as classes of their own (as in Vinyals et al.)"""

    def __init__(self, images, n_way, k_shot, k_query, seed):
        self.images = images
        self.n_way, self.k_shot, self.k_query = n_way, k_shot, k_query
        self.rng = np.random.RandomState(seed)

    def sample(self):
        chars = self.rng.choice(len(self.images), self.n_way, replace=False)
        xs, ys, xq, yq = [], [], [], []
        for label, c in enumerate(chars):
            drawers = self.rng.choice(self.images.shape[1], self.k_shot + self.k_query, replace=False)
            turn = self.rng.randint(4)
            for n, d in enumerate(drawers):
                img = np.rot90(self.images[c, d], turn).astype(np.float64) / 255.
                if n < self.k_shot:
                    xs.append(img)
                    ys.append(label)
                else:
                    xq.append(img)
                    yq.append(label)
        to_x = lambda v: torch.tensor(np.array(v)).float().unsqueeze(1)
        return to_x(xs), torch.tensor(ys), to_x(xq), torch.tensor(yq)
