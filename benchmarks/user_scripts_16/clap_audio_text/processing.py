"""Clips and captions: `<root>/clips/*.npy` (int16, 16 kHz) and `<root>/captions.json`."""
import json
import os
import random

import numpy as np
import torch
from torch.utils.data import Dataset

PAD, CLS, UNK = 0, 1, 2
SOUNDS = ["hum", "beep", "hiss", "sweep", "pulse", "chord"]
LEVELS = ["quiet", "loud"]
PLACES = ["first", "last", "throughout"]


def make_corpus(root, n, seconds, sr, seed):
    rng = np.random.RandomState(seed)
    os.makedirs(os.path.join(root, "clips"))
    caps = {}
    t = np.arange(int(seconds * sr)) / sr
    for i in range(n):
        a, b, lv = rng.randint(6), rng.randint(6), rng.randint(2)
        parts = []
        for s in (a, b):
            f = rng.uniform(200, 3000)
            parts.append({0: np.sin(2 * np.pi * 120 * t), 1: np.sin(2 * np.pi * f * t) * (t % .5 < .1),
                          2: rng.randn(len(t)) * .5, 3: np.sin(2 * np.pi * (300 + f * t / seconds) * t),
                          4: np.sign(np.sin(2 * np.pi * 8 * t)) * np.sin(2 * np.pi * 900 * t),
                          5: sum(np.sin(2 * np.pi * h * 440 * t) for h in (1, 1.25, 1.5)) / 3}[s])
        half = len(t) // 2
        wav = np.where(np.arange(len(t)) < half, parts[0], parts[1]) * (0.7 if lv else 0.1)
        name = "clip_%06d.npy" % i
        np.save(os.path.join(root, "clips", name), (wav * 20000).clip(-32768, 32767).astype(np.int16))
        x, y, l = SOUNDS[a], SOUNDS[b], LEVELS[lv]
        caps[name] = ["a %s %s then a %s" % (l, x, y), "%s followed by %s it is %s" % (x, y, l),
                      "first a %s , last a %s , %s" % (x, y, l), "someone records a %s %s and a %s" % (l, x, y),
                      "the %s comes before the %s , all of it %s" % (x, y, l)]
    with open(os.path.join(root, "captions.json"), "w") as f:
        json.dump(caps, f)


class Tokenizer:
    def __init__(self, captions, max_length):
        words = sorted({w for caps in captions.values() for c in caps for w in c.split()})
        self.vocab = {w: i + 3 for i, w in enumerate(words)}
        self.max_length = max_length

    def __len__(self):
        return len(self.vocab) + 3

    def __call__(self, text):
        return [CLS] + [self.vocab.get(w, UNK) for w in text.lower().split()][:self.max_length - 1]


class AudioTextDataset(Dataset):
    def __init__(self, root, names, captions, tokenizer, samples, train):
        self.root, self.names, self.captions = root, names, captions
        self.tokenizer, self.samples, self.train = tokenizer, samples, train

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        name = self.names[i]
        wav = np.load(os.path.join(self.root, "clips", name))
        if len(wav) < self.samples:
            wav = np.pad(wav, (0, self.samples - len(wav)))
        start = random.randint(0, len(wav) - self.samples) if self.train else 0
        wav = wav[start:start + self.samples].astype(np.float32) / 32768.0
        caps = self.captions[name]
        caption = random.choice(caps) if self.train else caps[0]
        return {"waveform": torch.from_numpy(wav), "input_ids": self.tokenizer(caption)}


class Collator:
    def __call__(self, features):
        longest = max(len(f["input_ids"]) for f in features)
        ids = torch.full((len(features), longest), PAD, dtype=torch.long)
        for i, f in enumerate(features):
            ids[i, :len(f["input_ids"])] = torch.tensor(f["input_ids"])
        return {"waveform": torch.stack([f["waveform"] for f in features]),
                "input_ids": ids, "attention_mask": (ids != PAD).long()}
