"""writes fake hand x-rays (more and longer bones with age) as PNG files and index.csv"""
import argparse
import os

import numpy as np
from PIL import Image, ImageDraw

p = argparse.ArgumentParser()
p.add_argument('--root', required=True)
p.add_argument('--n', type=int, default=400)
a = p.parse_args()
os.makedirs(a.root, exist_ok=True)
r = np.random.RandomState(0)
with open(os.path.join(a.root, 'index.csv'), 'w') as f:
    f.write('file,months,sex\n')
    for i in range(a.n):
        months, sex = int(r.randint(12, 216)), 'MF'[r.randint(2)]
        w, h = int(r.randint(70, 110)), int(r.randint(80, 120))
        im = Image.new('L', (w, h), int(r.randint(5, 30)))
        d = ImageDraw.Draw(im)
        grow = months / 216 * (1.0 if sex == 'M' else 1.1)
        for k in range(5):
            x = w * (k + 1) / 6
            top = h * (.75 - .5 * grow + .04 * abs(k - 2))
            d.line([(x, h * .8), (x + r.uniform(-3, 3), top)], fill=int(120 + 100 * grow), width=int(2 + 5 * grow))
        im.save(os.path.join(a.root, '%04d.png' % i))
        f.write('%04d.png,%d,%s\n' % (i, months, sex))
