"""Parametric surfaces in place of ModelNet (the download link is dead from our cluster)."""
import os
import numpy as np
from torch.utils.data import Dataset

NAMES = ['sphere', 'cube', 'cylinder', 'cone', 'torus', 'capsule', 'table', 'chair', 'helix', 'cross']


def surface(kind, n, rng):
    u, v = rng.rand(n), rng.rand(n)
    a = 2 * np.pi * u
    if kind == 'sphere':
        z = 2 * v - 1
        r = np.sqrt(1 - z ** 2)
        return np.stack([r * np.cos(a), r * np.sin(a), z], 1)
    if kind in ('cube', 'table', 'chair', 'cross'):
        boxes = {'cube': [(0, 0, 0, 1, 1, 1)],
                 'table': [(0, 0, .8, 1, .7, .1)] + [(x, y, -.1, .08, .08, .8) for x in (-.9, .9) for y in (-.6, .6)],
                 'chair': [(0, 0, 0, .6, .6, .1), (-.55, 0, .6, .06, .6, .6)] +
                          [(x, y, -.5, .07, .07, .5) for x in (-.5, .5) for y in (-.5, .5)],
                 'cross': [(0, 0, 0, 1, .2, .2), (0, 0, 0, .2, 1, .2), (0, 0, 0, .2, .2, 1)]}[kind]
        b = np.array(boxes)[rng.randint(len(boxes), size=n)]
        p = 2 * rng.rand(n, 3) - 1
        face = rng.randint(3, size=n)
        p[np.arange(n), face] = np.sign(p[np.arange(n), face])
        return b[:, :3] + b[:, 3:] * p
    if kind == 'cylinder':
        return np.stack([.6 * np.cos(a), .6 * np.sin(a), 2 * v - 1], 1)
    if kind == 'cone':
        r = np.sqrt(v)
        return np.stack([.8 * r * np.cos(a), .8 * r * np.sin(a), 1 - 2 * r], 1)
    if kind == 'torus':
        b = 2 * np.pi * v
        return np.stack([(.8 + .3 * np.cos(b)) * np.cos(a), (.8 + .3 * np.cos(b)) * np.sin(a), .3 * np.sin(b)], 1)
    if kind == 'capsule':
        p = surface('sphere', n, rng)
        p[:, 2] = .5 * p[:, 2] + np.sign(p[:, 2]) * .6
        return p * np.array([.5, .5, 1])
    b = 6 * np.pi * v  # helix
    return np.stack([.7 * np.cos(b) + .1 * np.cos(a), .7 * np.sin(b) + .1 * np.sin(a), 2 * v - 1], 1)


def random_rotation(rng):
    q, r = np.linalg.qr(rng.randn(3, 3))
    q = q * np.sign(np.diag(r))
    if np.linalg.det(q) < 0:
        q[:, 0] *= -1
    return q


def load_data(partition, size, cache='data'):
    """float32 [size, 2048, 3] and int64 [size, 1]; written once"""
    path = os.path.join(cache, 'surfaces_%s_%d.npz' % (partition, size))
    if not os.path.exists(path):
        os.makedirs(cache, exist_ok=True)
        rng = np.random.RandomState(7 if partition == 'train' else 8)
        points, labels = np.zeros((size, 2048, 3), dtype='float32'), np.zeros((size, 1), dtype='int64')
        for i in range(size):
            k = rng.randint(len(NAMES))
            p = surface(NAMES[k], 2048, rng) * rng.uniform(.6, 1.2, 3)
            p = p.dot(random_rotation(rng)) + .01 * rng.randn(2048, 3)
            p -= p.mean(0)
            points[i], labels[i] = p / np.sqrt((p ** 2).sum(1)).max(), k
        np.savez(path, data=points, label=labels)
    with np.load(path) as f:
        return f['data'], f['label']


def translate_pointcloud(pointcloud):
    xyz1 = np.random.uniform(low=2. / 3., high=3. / 2., size=[3])
    xyz2 = np.random.uniform(low=-0.2, high=0.2, size=[3])
    return np.add(np.multiply(pointcloud, xyz1), xyz2).astype('float32')


class Surfaces(Dataset):
    def __init__(self, num_points, partition, size):
        self.data, self.label = load_data(partition, size)
        self.num_points = num_points
        self.partition = partition

    def __getitem__(self, item):
        pointcloud = self.data[item][:self.num_points]
        label = self.label[item]
        if self.partition == 'train':
            pointcloud = translate_pointcloud(pointcloud)
            np.random.shuffle(pointcloud)
        return pointcloud, label

    def __len__(self):
        return self.data.shape[0]
