import os
import random

import numpy as np
import torch
from torch.utils.data import Dataset

from .audio import SR, log_mel, read_wav


def read_list(root, name):
    with open(os.path.join(root, name)) as f:
        return set(line.strip() for line in f if line.strip())


def list_split(root):
    words = sorted(d for d in os.listdir(root)
                   if os.path.isdir(os.path.join(root, d)) and not d.startswith("_"))
    val, test = read_list(root, "validation_list.txt"), read_list(root, "testing_list.txt")
    split = {"train": [], "val": [], "test": []}
    for label, word in enumerate(words):
        for fn in sorted(os.listdir(os.path.join(root, word))):
            rel = word + "/" + fn
            part = "val" if rel in val else "test" if rel in test else "train"
            split[part].append((rel, label))
    return words, split


class SpeechCommands(Dataset):
    def __init__(self, root, items, noise=None, train=False):
        self.root = root
        self.items = items
        self.train = train
        self.noise = noise or []

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        rel, label = self.items[i]
        x = read_wav(os.path.join(self.root, rel))
        if self.train:
            shift = random.randint(-1600, 1600)
            x = np.roll(x, shift)
            if shift > 0:
                x[:shift] = 0
            elif shift < 0:
                x[shift:] = 0
            if self.noise and random.random() < 0.8:
                n = random.choice(self.noise)
                start = random.randint(0, len(n) - SR)
                x = x + n[start:start + SR] * random.uniform(0, 0.1)
        feat = log_mel(torch.tensor(x, dtype=torch.float32))
        if self.train:
            feat = self.spec_augment(feat)
        return feat.unsqueeze(0), label

    @staticmethod
    def spec_augment(feat, F=12, T=20):
        feat = feat.clone()
        f = random.randint(0, F)
        f0 = random.randint(0, feat.shape[0] - f)
        feat[f0:f0 + f] = feat.mean()
        t = random.randint(0, T)
        t0 = random.randint(0, feat.shape[1] - t)
        feat[:, t0:t0 + t] = feat.mean()
        return feat
