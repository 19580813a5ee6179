import functools
import math

import numpy as np
import torch
from torch.utils.data import Dataset

SR = 4000
WORDS = ['up', 'down', 'left', 'right', 'go', 'stop']
F0 = {'up': (300, 700), 'down': (700, 300), 'left': (400, 400), 'right': (900, 900), 'go': (250, 1000), 'stop': (1000, 250)}


@functools.lru_cache(maxsize=None)
def window(n, kind='hann'):
    return torch.hann_window(n) if kind == 'hann' else torch.ones(n)


@functools.lru_cache(maxsize=None)
def mel_matrix(n_mels, n_fft, sr):
    mel = lambda f: 2595 * math.log10(1 + f / 700)
    inv = lambda m: 700 * (10 ** (m / 2595) - 1)
    pts = [inv(mel(sr / 2) * i / (n_mels + 1)) for i in range(n_mels + 2)]
    freqs = np.linspace(0, sr / 2, n_fft // 2 + 1)
    fb = np.zeros((n_mels, len(freqs)), dtype=np.float32)
    for i in range(n_mels):
        lo, c, hi = pts[i:i + 3]
        fb[i] = np.clip(np.minimum((freqs - lo) / (c - lo), (hi - freqs) / (hi - c)), 0, None)
    return torch.from_numpy(fb)


def synth(word, r):
    n = r.randint(int(0.25 * SR), int(0.5 * SR))
    t = np.linspace(0, 1, n)
    a, b = F0[word]
    f = (a + (b - a) * t) * r.uniform(0.85, 1.15)
    ph = 2 * np.pi * np.cumsum(f) / SR
    y = np.sin(ph) + 0.4 * np.sin(2 * ph) + 0.4 * r.randn(n)
    return (y * np.sin(np.pi * t)).astype(np.float32)


class Commands(Dataset):
    def __init__(self, n, seed):
        r = np.random.RandomState(seed)
        self.labels = r.randint(0, len(WORDS), n)
        self.waves = [synth(WORDS[k], r) for k in self.labels]
        self._logits = {}                    # teacher logits, filled while training

    def __len__(self):
        return len(self.waves)

    def __getitem__(self, i):
        return i, self.waves[i], int(self.labels[i]), self._logits.get(i)

    def remember(self, i, logits):
        self._logits[i] = logits


def collate(items, pad_to=64, training=False):
    idx, waves, labels, cached = zip(*items)
    m = max(map(len, waves))
    m = (m + pad_to - 1) // pad_to * pad_to
    x = torch.zeros(len(waves), m)
    shift = torch.randint(0, 100, (len(waves),)) if training else [0] * len(waves)
    for k, w in enumerate(waves):
        s = min(int(shift[k]), m - len(w))
        x[k, s:s + len(w)] = torch.from_numpy(w)
    lens = torch.tensor([len(w) for w in waves])
    return list(idx), x, lens, torch.tensor(labels), cached
