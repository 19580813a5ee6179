"""Synthetic clips for multi-label sound event tagging: every clip holds one to four events on noise."""
import os

import numpy as np
from torch.utils.data import Dataset

EVENTS = ['beep', 'chirp', 'siren', 'click', 'hum', 'bell', 'hiss', 'knock', 'buzz', 'whistle']


def event(kind, n, sr, rng):
    t = np.arange(n) / sr
    top = sr / 2
    f = rng.uniform(0.1, 0.4) * top
    if kind == 'beep':
        return np.sin(2 * np.pi * f * t) * (np.sin(2 * np.pi * 6 * t) > 0)
    if kind == 'chirp':
        return np.sin(2 * np.pi * (f * t + 0.4 * top * t ** 2 / (2 * t[-1])))
    if kind == 'siren':
        return np.sin(2 * np.pi * f * t + 30 * np.sin(2 * np.pi * 2 * t))
    if kind == 'click':
        x = np.zeros(n)
        x[rng.integers(0, n, 12)] = 3
        return x
    if kind == 'hum':
        return sum(np.sin(2 * np.pi * 0.02 * top * k * t) / k for k in range(1, 5))
    if kind == 'bell':
        return sum(np.sin(2 * np.pi * f * r * t) for r in (1, 1.41, 2.13)) * np.exp(-4 * t / t[-1]) / 2
    if kind == 'hiss':
        return np.diff(rng.standard_normal(n + 1)) / 2
    if kind == 'knock':
        return np.sin(2 * np.pi * 0.05 * top * t) * np.exp(-60 * (t * 4 / t[-1] % 1))
    if kind == 'buzz':
        return np.sign(np.sin(2 * np.pi * 0.06 * top * t)) * 0.6
    return np.sin(2 * np.pi * 0.7 * top * t) * (0.5 + 0.5 * np.sin(2 * np.pi * 9 * t))


def make_clips(path, n, seconds, sr, seed):
    """int16 [n, seconds * sr] in a .npy of its own, labels beside it"""
    rng = np.random.default_rng(seed)
    length = int(seconds * sr)
    out = np.lib.format.open_memmap(path + '_wav.npy', 'w+', np.int16, (n, length))
    lab = np.zeros((n, len(EVENTS)), np.float32)
    for i in range(n):
        x = 0.05 * rng.standard_normal(length)
        for k in rng.choice(len(EVENTS), rng.integers(1, 5), replace=False):
            m = int(length * rng.uniform(0.2, 0.5))
            s = rng.integers(0, length - m)
            x[s:s + m] += rng.uniform(0.1, 0.5) * event(EVENTS[k], m, sr, rng)
            lab[i, k] = 1
        out[i] = (np.clip(x / 2, -1, 1) * 32767).astype(np.int16)
    np.save(path + '_lab.npy', lab)


class ClipSet(Dataset):
    def __init__(self, folder, split, n, seconds, sr, train, mixup=0.5):
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, split)
        if not os.path.exists(path + '_lab.npy'):
            make_clips(path, n, seconds, sr, seed=len(split))
        self.wav = np.load(path + '_wav.npy', mmap_mode='r')
        self.lab = np.load(path + '_lab.npy')
        self.train, self.mixup = train, mixup

    def __len__(self):
        return len(self.wav)

    def read(self, i):
        x = self.wav[i].astype(np.float32) / 32768
        if self.train:
            x = np.roll(x, np.random.randint(len(x))) * np.random.uniform(0.5, 1.5)
            if np.random.rand() < 0.3:  # play it faster or slower
                pos = np.arange(len(x)) * np.random.uniform(0.9, 1.1) % (len(x) - 1)
                x = np.interp(pos, np.arange(len(x)), x)
        return x.astype(np.float32)

    def __getitem__(self, i):
        x, y = self.read(i), self.lab[i]
        if self.train and np.random.rand() < self.mixup:
            j = np.random.randint(len(self))
            x = 0.5 * (x + self.read(j))
            y = np.maximum(y, self.lab[j])
        return x, y
