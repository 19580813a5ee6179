"""Toy stand-in for ShapeNet parts: lamps, tables, mugs, rockets from boxes, discs and tubes."""
import os

import numpy as np

CATEGORIES = ['lamp', 'table', 'mug', 'rocket']
PARTS = {'lamp': [0, 1, 2], 'table': [3, 4], 'mug': [5, 6], 'rocket': [7, 8, 9]}
N_PARTS = 10


def tube(rng, n, r0, r1, h, z):
    a = rng.uniform(0, 2 * np.pi, n)
    t = rng.uniform(0, 1, n)
    r = r0 + (r1 - r0) * t
    return np.stack([r * np.cos(a), r * np.sin(a), z + h * t], 1)


def box(rng, n, size, center):
    p = rng.uniform(-0.5, 0.5, (n, 3))
    ax = rng.randint(0, 3, n)
    p[np.arange(n), ax] = np.sign(p[np.arange(n), ax]) * 0.5
    return p * size + center


def ring(rng, n, r, thick, center):
    a, b = rng.uniform(0, 2 * np.pi, (2, n))
    return np.stack([(r + thick * np.cos(b)) * np.cos(a), thick * np.sin(b),
                     (r + thick * np.cos(b)) * np.sin(a)], 1) + center


def make_shape(rng, n):
    cat = rng.randint(0, 4)
    u = rng.uniform
    if cat == 0:
        parts = [tube(rng, n, u(.3, .5), .25, .05, 0), tube(rng, n, .04, .04, u(.8, 1.3), .05),
                 tube(rng, n, u(.3, .5), u(.1, .25), .4, 1.0)]
    elif cat == 1:
        w, d, h = u(.8, 1.6), u(.6, 1.2), u(.5, .9)
        legs = [box(rng, n // 4, np.array([.06, .06, h]), np.array([sx * w / 2.2, sy * d / 2.2, h / 2]))
                for sx in (-1, 1) for sy in (-1, 1)]
        parts = [box(rng, n, np.array([w, d, .06]), np.array([0, 0, h])), np.concatenate(legs)]
    elif cat == 2:
        r, h = u(.3, .45), u(.6, .9)
        parts = [tube(rng, n, r, r, h, 0), ring(rng, n // 3, u(.15, .25), .04, np.array([r + .12, 0, h / 2]))]
    else:
        h = u(1., 1.6)
        fins = [box(rng, n // 3, np.array([.3, .03, .3]), np.array([c, s, .15]) * .3)
                for c, s in ((1, 0), (-.5, .87), (-.5, -.87))]
        parts = [tube(rng, n, .2, .2, h, 0), tube(rng, n // 2, .2, .01, .4, h), np.concatenate(fins)]
    labels = [np.full(len(p), PARTS[CATEGORIES[cat]][k]) for k, p in enumerate(parts)]
    xyz, seg = np.concatenate(parts), np.concatenate(labels)
    keep = rng.choice(len(xyz), n, replace=len(xyz) < n)
    return xyz[keep], seg[keep], cat


def make_data(root, n_train, n_test, n_points):
    rng = np.random.RandomState(3)
    for split, n in (('train', n_train), ('test', n_test)):
        d = os.path.join(root, split)
        if os.path.isdir(d):
            continue
        os.makedirs(d)
        for i in range(n):
            xyz, seg, cat = make_shape(rng, n_points)
            table = np.concatenate([xyz, seg[:, None], np.full((len(xyz), 1), cat)], 1)
            np.savetxt(os.path.join(d, '%05d.txt' % i), table, fmt='%.6f')
