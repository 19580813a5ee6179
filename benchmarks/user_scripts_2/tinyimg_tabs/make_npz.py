import sys
import numpy as np

n, size = int(sys.argv[1]), int(sys.argv[2])
r = np.random.RandomState(3)
y = r.randint(0, 6, n)
yy, xx = np.mgrid[:size, :size] / size
imgs = []
for k in y:
    f, a = 2 + k % 3, (k // 3) * np.pi / 3 + r.normal(0, .1)
    p = np.sin(2 * np.pi * f * (xx * np.cos(a) + yy * np.sin(a)) + r.uniform(0, 6))
    im = 128 + 60 * p[..., None] * r.uniform(.4, 1, 3) + r.normal(0, 25, (size, size, 3))
    imgs.append(np.clip(im, 0, 255).astype(np.uint8))
np.savez('images.npz', x=np.stack(imgs), y=y)
