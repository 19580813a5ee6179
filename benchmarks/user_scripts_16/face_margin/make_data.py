# -*- coding: utf-8 -*-
"""toy identities: smooth random faces with jitter, as 112x112 (or smaller) JPEG files"""
from __future__ import print_function
import os

import numpy as np
from PIL import Image


def make_faces(root, n_ids, per_id, size, seed=0):
    rng = np.random.RandomState(seed)
    os.makedirs(root)
    train, probe = [], []
    for c in range(n_ids):
        base = rng.rand(6, 6, 3) * 255
        held_out = c >= int(n_ids * 0.8)
        for k in range(per_id):
            img = Image.fromarray((base + rng.randn(6, 6, 3) * 18).clip(0, 255).astype(np.uint8))
            img = img.resize((size + 8, size + 8), Image.BICUBIC)
            name = 'id%05d_%03d.jpg' % (c, k)
            img.save(os.path.join(root, name), quality=90)
            (probe if held_out else train).append((name, c))
    with open(os.path.join(root, 'train.txt'), 'w') as f:
        for name, c in train:
            f.write('%s %d\n' % (name, c))
    with open(os.path.join(root, 'pairs.txt'), 'w') as f:
        for i in range(min(6000, 3 * len(probe))):
            a = rng.randint(len(probe))
            if i % 2 == 0:
                same = [j for j in range(len(probe)) if probe[j][1] == probe[a][1]]
            else:
                same = [j for j in range(len(probe)) if probe[j][1] != probe[a][1]]
            b = same[rng.randint(len(same))]
            f.write('%s %s %d\n' % (probe[a][0], probe[b][0], int(i % 2 == 0)))
