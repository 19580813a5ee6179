import os

import numpy as np
from torch.utils.data import Dataset

seg_classes = {'Table': [0, 1], 'Lamp': [2, 3, 4], 'Rocket': [5, 6, 7]}


def _disk(rng, n, r, y, thick=0.03):
    a, q = rng.uniform(0, 2 * np.pi, n), np.sqrt(rng.uniform(0, 1, n)) * r
    return np.stack([q * np.cos(a), y + rng.uniform(-thick, thick, n), q * np.sin(a)], 1)


def _tube(rng, n, r, y0, y1, cx=0., cz=0.):
    a = rng.uniform(0, 2 * np.pi, n)
    return np.stack([cx + r * np.cos(a), rng.uniform(y0, y1, n), cz + r * np.sin(a)], 1)


def _cone(rng, n, r, y0, y1):
    h = rng.uniform(0, 1, n)
    a = rng.uniform(0, 2 * np.pi, n)
    return np.stack([r * (1 - h) * np.cos(a), y0 + h * (y1 - y0), r * (1 - h) * np.sin(a)], 1)


def make_shape(rng, cat, n=600):
    if cat == 'Table':
        h = rng.uniform(0.5, 1.0)
        w = rng.uniform(0.5, 0.8)
        legs = [_tube(rng, n // 8, 0.04, 0, h, sx * w * 0.6, sz * w * 0.6) for sx in (-1, 1) for sz in (-1, 1)]
        parts = [_disk(rng, n // 2, w, h), np.concatenate(legs)]
    elif cat == 'Lamp':
        h = rng.uniform(0.8, 1.3)
        parts = [_disk(rng, n // 4, 0.35, 0), _tube(rng, n // 4, 0.03, 0, h), _cone(rng, n // 2, 0.4, h - .2, h + .3)]
    else:
        h = rng.uniform(0.9, 1.4)
        fins = np.concatenate([_tube(rng, n // 8, 0.1, 0, 0.3, x, 0.) for x in (-.3, .3)])
        parts = [_tube(rng, n // 2, 0.2, 0, h), _cone(rng, n // 4, 0.2, h, h + 0.4), fins]
    pts = np.concatenate(parts)
    seg = np.concatenate([np.full(len(p), seg_classes[cat][i]) for i, p in enumerate(parts)])
    return pts, seg


def prepare(root, per_class=22, seed=7):
    """Writes the benchmark as text files: x y z label, one point per line."""
    if os.path.exists(os.path.join(root, 'done')):
        return
    rng = np.random.RandomState(seed)
    for cat in seg_classes:
        os.makedirs(os.path.join(root, cat), exist_ok=True)
        for i in range(per_class):
            pts, seg = make_shape(rng, cat)
            np.savetxt(os.path.join(root, cat, '%03d.txt' % i), np.c_[pts, seg], fmt='%.6f')
    open(os.path.join(root, 'done'), 'w').close()


def pc_normalize(pc):
    centroid = np.mean(pc, axis=0)
    pc = pc - centroid
    m = np.max(np.sqrt(np.sum(pc ** 2, axis=1)))
    pc = pc / m
    return pc


class PartNormalDataset(Dataset):
    def __init__(self, root, npoints=256, split='train'):
        self.npoints = npoints
        self.split = split
        self.datapath = []
        self.classes = dict(zip(seg_classes.keys(), range(len(seg_classes))))
        for cat in seg_classes:
            fns = sorted(os.listdir(os.path.join(root, cat)))
            fns = fns[:-6] if split == 'train' else fns[-6:]
            self.datapath += [(cat, os.path.join(root, cat, fn)) for fn in fns]

    def __getitem__(self, index):
        cat, fn = self.datapath[index]
        cls = np.array([self.classes[cat]]).astype(np.int32)
        data = np.loadtxt(fn).astype(np.float32)
        point_set = data[:, 0:3]
        seg = data[:, -1].astype(np.int32)
        point_set = pc_normalize(point_set)
        # resample
        if self.split == 'train':
            choice = np.random.choice(len(seg), self.npoints, replace=True)
        else:
            choice = np.random.RandomState(index).choice(len(seg), self.npoints, replace=True)
        return point_set[choice, :], cls, seg[choice]

    def __len__(self):
        return len(self.datapath)
