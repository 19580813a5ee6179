import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

JOINTS = ['head', 'hip', 'hand_l', 'hand_r', 'foot_l', 'foot_r']
FLIP = [0, 1, 3, 2, 5, 4]


def line(im, a, b, c):
    for t in np.linspace(0, 1, 24):
        x, y = np.round(a + t * (b - a)).astype(int)
        if 0 <= x < im.shape[2] and 0 <= y < im.shape[1]:
            im[:, y, x] = c


def puppet(i, size):
    r = np.random.RandomState(i)
    hip = r.uniform(.4, .6, 2) * size
    head = hip + (r.uniform(-2, 2), -size * .22)
    neck = .7 * head + .3 * hip
    pts = [head, hip]
    for base, s, dy in ((neck, -1, 0), (neck, 1, 0), (hip, -1, .25), (hip, 1, .25)):
        pts.append(base + (s * r.uniform(.08, .25) * size, (dy + r.uniform(-.1, .1)) * size))
    pts = np.array(pts)
    im = r.uniform(0, .25, (3, size, size))
    for k, base in ((0, hip), (2, neck), (3, neck), (4, hip), (5, hip)):
        line(im, base, pts[k], np.eye(3)[k % 3] * .8 + .1)
    vis = (r.rand(6) > .1).astype(np.float32)
    return im.astype(np.float32), pts.astype(np.float32), vis


class Puppets(Dataset):
    def __init__(self, first, n, cfg, train):
        self.first, self.n, self.cfg, self.train = first, n, cfg, train

    def __len__(self):
        return self.n

    def __getitem__(self, k):
        im, pts, vis = puppet(self.first + k, self.cfg.SIZE)
        if self.train:
            if np.random.rand() < .5:
                im = im[:, :, ::-1]
                pts = pts[FLIP] * (-1, 1) + (self.cfg.SIZE - 1, 0)
                vis = vis[FLIP]
            im = im * np.random.uniform(.7, 1.3)
        heat, w = self.target(pts, vis)
        return {'image': torch.from_numpy(np.ascontiguousarray(im, np.float32)), 'heat': torch.from_numpy(heat),
                'weight': torch.from_numpy(w), 'pts': torch.from_numpy(np.asarray(pts, np.float32)),
                'meta': {'name': 'puppet_%05d' % (self.first + k), 'joints': int(vis.sum())}}

    def target(self, pts, vis):
        h = self.cfg.HEAT
        q = pts * h / self.cfg.SIZE
        g = np.arange(h, dtype=np.float32)
        d2 = (g[None, None, :] - q[:, 0, None, None]) ** 2 + (g[None, :, None] - q[:, 1, None, None]) ** 2
        heat = np.exp(-d2 / (2 * self.cfg.SIGMA ** 2))
        inside = ((q >= 0) & (q < h)).all(1)
        return heat.astype(np.float32), vis * inside.astype(np.float32)


class EpochSeed:
    """worker_init_fn; the loop sets .epoch, so that each epoch has its own and repeatable augmentation"""

    def __init__(self, seed):
        self.seed, self.epoch = seed, 0

    def __call__(self, worker):
        np.random.seed(self.seed * 1000 + self.epoch * 10 + worker)


def build_loaders(cfg):
    seeder = EpochSeed(cfg.SEED)
    d = cfg.DATA
    tr = DataLoader(Puppets(0, d.N_TRAIN, d, True), d.BATCH, shuffle=True, num_workers=d.WORKERS, worker_init_fn=seeder)
    va = DataLoader(Puppets(10000, d.N_VAL, d, False), d.BATCH)
    return tr, va, seeder
