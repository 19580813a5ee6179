"""Morse code with noise, 'recorded' as 24 band energies per frame."""
import random

import numpy as np
import torch
from torch.utils.data import Dataset, Sampler

CODE = {'a': '.-', 'e': '.', 'h': '....', 'i': '..', 'm': '--', 'n': '-.', 'o': '---', 'r': '.-.', 's': '...', 't': '-', 'w': '.--'}
ALPHABET = '_' + ''.join(CODE)          # 0 is the blank of CTC


class Morse(Dataset):
    def __init__(self, n, n_val, min_len, max_len, split='train', feats=24):
        rs = random.Random(5 if split == 'train' else 6)
        self.texts = [''.join(rs.choice(ALPHABET[1:]) for _ in range(rs.randint(min_len, max_len)))
                      for _ in range(n if split == 'train' else n_val)]
        self.feats, self.split = feats, split
        self.plays = np.zeros(len(self.texts), int)       # how often each one was played, seeds its noise

    def __len__(self):
        return len(self.texts)

    def frames(self, i):
        return 4 + sum(3 + sum(2 if s == '.' else 4 for s in CODE[c]) for c in self.texts[i])

    def __getitem__(self, i):
        g = np.random.default_rng([i, self.plays[i] if self.split == 'train' else 0])
        self.plays[i] += 1
        band = 6 + 3 * (i % 3)
        on = [0, 0]
        for c in self.texts[i]:
            for s in CODE[c]:
                on += [1] * (1 if s == '.' else 3) + [0]
            on += [0, 0, 0]
        on = np.array(on + [0, 0], np.float32)
        x = g.normal(0, .1, (len(on), self.feats)).astype(np.float32)
        x[:, band - 1:band + 2] += on[:, None] * np.array([.5, 1, .5], np.float32) * g.uniform(.8, 1.2)
        if self.split == 'train' and i % 71 == 70:
            x = x[:3]                                     # the recording broke off
        return {'x': torch.from_numpy(x), 'y': torch.tensor([ALPHABET.index(c) for c in self.texts[i]]),
                'text': self.texts[i], 'utt': f'utt{i:04d}'}


def collate(items):
    items = sorted(items, key=lambda d: -len(d['x']))           # pack_padded_sequence wants them sorted
    lens = torch.tensor([len(d['x']) for d in items])
    x = torch.nn.utils.rnn.pad_sequence([d['x'] for d in items], batch_first=True)
    return {'x': x, 'lens': lens, 'y': torch.cat([d['y'] for d in items]), 'ylens': [len(d['y']) for d in items],
            'text': [d['text'] for d in items], 'utt': [d['utt'] for d in items]}


class SortaGrad(Sampler):
    """batches with at most `frames` padded frames; sorted by length in epoch 0, then batches in random order"""

    def __init__(self, ds, frames):
        self.ds, self.frames, self.epoch = ds, frames, 0
        order = sorted(range(len(ds)), key=ds.frames)
        self.batches, cur = [], []
        for i in order:
            if cur and ds.frames(i) * (len(cur) + 1) > frames:
                self.batches.append(cur)
                cur = []
            cur.append(i)
        self.batches.append(cur)

    def __iter__(self):
        b = list(self.batches)
        if self.epoch > 0:
            random.shuffle(b)
        self.epoch += 1
        return iter(b)

    def __len__(self):
        return len(self.batches)
