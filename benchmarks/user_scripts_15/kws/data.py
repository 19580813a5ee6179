import os
import random
import wave

import numpy as np
import torch
from torch.utils.data import Dataset

from features import SAMPLE_RATE, logmel

ALL_WORDS = ['yes', 'no', 'up', 'down', 'left', 'right', 'on', 'off', 'stop', 'go',
             'bed', 'bird', 'cat', 'dog', 'eight', 'five', 'four', 'happy', 'house', 'marvin',
             'nine', 'one', 'seven', 'sheila', 'six', 'three', 'tree', 'two', 'wow', 'zero',
             'backward', 'forward', 'follow', 'learn', 'visual']
TARGETS = ALL_WORDS[:10]
UNKNOWN = 10
SILENCE = 11
N_CLASSES = 12


def write_wav(path, x):
    w = wave.open(path, 'wb')
    w.setnchannels(1)
    w.setsampwidth(2)
    w.setframerate(SAMPLE_RATE)
    w.writeframes((np.clip(x, -1, 1) * 32767).astype('<i2').tobytes())
    w.close()


def read_wav(path):
    w = wave.open(path, 'rb')
    x = np.frombuffer(w.readframes(w.getnframes()), dtype='<i2')
    w.close()
    return x.astype(np.float32) / 32768.


def say(word, rng):
    """A caricature of a spoken word: three gliding tones per word, a different pitch per speaker."""
    r = np.random.RandomState(ALL_WORDS.index(word) + 1000)
    n = int(rng.uniform(0.45, 0.7) * SAMPLE_RATE)
    t = np.arange(n) / float(SAMPLE_RATE)
    u = np.linspace(0, 1, n)
    x = np.zeros(n)
    pitch = rng.uniform(0.9, 1.1)
    for _ in range(3):
        f0, f1 = r.uniform(250, 3200, 2) * pitch
        x += r.uniform(0.4, 1) * np.sin(2 * np.pi * np.cumsum(f0 + (f1 - f0) * u) / SAMPLE_RATE)
    x *= np.sin(np.pi * u) ** 0.5 * (1 + 0.5 * np.sin(2 * np.pi * r.uniform(3, 9) * t))
    out = rng.randn(SAMPLE_RATE) * 0.004
    s = rng.randint(0, SAMPLE_RATE - n)
    out[s:s + n] += 0.12 * x
    return out


def make_corpus(root, per_word, noise_seconds):
    if os.path.exists(os.path.join(root, 'DONE')):
        return
    rng = np.random.RandomState(59)
    for word in ALL_WORDS:
        os.makedirs(os.path.join(root, word), exist_ok=True)
        for i in range(per_word):
            write_wav(os.path.join(root, word, '%05d.wav' % i), say(word, rng))
    os.makedirs(os.path.join(root, '_background_noise_'), exist_ok=True)
    for i in range(6):
        n = rng.randn(SAMPLE_RATE * noise_seconds)
        n = np.convolve(n, np.ones(2 * i + 1) / (2 * i + 1), mode='same')
        write_wav(os.path.join(root, '_background_noise_', '%d.wav' % i), 0.1 * n)
    open(os.path.join(root, 'DONE'), 'w').close()


class SpeechCommands(Dataset):
    """12 classes: ten words, 'unknown' (the other 25 words) and silence.

    There are far more unknown clips than clips of any target, so each epoch
    draws a fresh 10 % of them: call set_epoch() before iterating.
    """

    def __init__(self, root, split, shift_ms=100, noise_prob=0.8, noise_vol=0.3):
        self.train = split == 'train'
        self.shift = SAMPLE_RATE * shift_ms // 1000
        self.noise_prob = noise_prob
        self.noise_vol = noise_vol
        self.known, self.others = [], []
        for word in ALL_WORDS:
            files = sorted(os.listdir(os.path.join(root, word)))
            cut = len(files) * 9 // 10
            files = files[:cut] if self.train else files[cut:]
            for f in files:
                path = os.path.join(root, word, f)
                if word in TARGETS:
                    self.known.append((path, TARGETS.index(word)))
                else:
                    self.others.append((path, UNKNOWN))
        d = os.path.join(root, '_background_noise_')
        self.noise = [read_wav(os.path.join(d, f)) for f in sorted(os.listdir(d))]
        self.set_epoch(0)

    def set_epoch(self, epoch):
        n = max(1, len(self.known) // 10)
        r = random.Random(epoch)
        self.items = self.known + r.sample(self.others, min(n, len(self.others)))
        self.items = self.items + [(None, SILENCE)] * n

    def __len__(self):
        return len(self.items)

    def __getitem__(self, idx):
        path, label = self.items[idx]
        if path is None:
            x = np.zeros(SAMPLE_RATE, np.float32)
        else:
            x = read_wav(path)
        if len(x) < SAMPLE_RATE:
            x = np.pad(x, (0, SAMPLE_RATE - len(x)), mode='constant')
        x = x[:SAMPLE_RATE]

        if self.train:
            s = random.randint(-self.shift, self.shift)
            x = np.roll(x, s)
            if s > 0:
                x[:s] = 0
            elif s < 0:
                x[s:] = 0
            if label == SILENCE or random.random() < self.noise_prob:
                bg = random.choice(self.noise)
                o = random.randint(0, len(bg) - SAMPLE_RATE)
                x = x + bg[o:o + SAMPLE_RATE] * random.uniform(0, self.noise_vol)
        return torch.from_numpy(logmel(x)).unsqueeze(0), label
