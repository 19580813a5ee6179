#!/usr/bin/env python
# writes data/{train,val}/{stripes,blobs,checker,rings}/*.png
import os
import random

import numpy as np
from PIL import Image

CLASSES = ['blobs', 'checker', 'rings', 'stripes']


def draw(kind, rng, s=40):
    yy, xx = np.mgrid[0:s, 0:s].astype(np.float32)
    cx, cy = rng.uniform(10, 30), rng.uniform(10, 30)
    if kind == 'stripes':
        v = np.sin(xx * rng.uniform(0.4, 0.9) + yy * rng.uniform(-.3, .3))
    elif kind == 'checker':
        v = np.sin(xx * rng.uniform(.4, .8)) * np.sin(yy * rng.uniform(.4, .8))
    elif kind == 'rings':
        v = np.sin(np.hypot(xx - cx, yy - cy) * rng.uniform(.5, .9))
    else:
        v = np.exp(-((xx - cx) ** 2 + (yy - cy) ** 2) / rng.uniform(40, 90)) * 2 - 1
    img = np.stack([v * rng.uniform(.5, 1) for _ in range(3)], -1)
    img = img * 70 + 128 + np.random.RandomState(rng.randint(0, 10 ** 6)).randn(s, s, 3) * 35
    return Image.fromarray(img.clip(0, 255).astype(np.uint8))


if __name__ == '__main__':
    rng = random.Random(7)
    for split, n in (('train', 45), ('val', 14)):
        for c in CLASSES:
            d = os.path.join('data', split, c)
            os.makedirs(d, exist_ok=True)
            for i in range(n):
                draw(c, rng).save(os.path.join(d, '%04d.png' % i))
    print('data written')
