import numpy as np
import torch
from torch.utils.data import Dataset, Sampler

from .features import log_mel, spec_augment

ALPHABET = "_ abcdefghijklmnopqrstuvwxyz"        # 0 is the blank
CHAR2ID = {c: i for i, c in enumerate(ALPHABET)}
WORDS = ("go stop left right up down open close door light on off red green blue lamp "
         "play pause next last song louder softer call home work turn the to and").split()


def synth(text, sr, rng):
    """every letter is a short two-tone whistle"""
    parts = []
    for c in text:
        n = int(sr * rng.uniform(0.06, 0.10))
        t = np.arange(n) / sr
        if c == " ":
            parts.append(np.zeros(n))
            continue
        k = CHAR2ID[c] - 1
        f1, f2 = (0.02 + 0.012 * k) * sr, (0.42 - 0.011 * k) * sr
        env = np.hanning(n)
        parts.append(env * (np.sin(2 * np.pi * f1 * t) + 0.6 * np.sin(2 * np.pi * f2 * t)))
    wav = np.concatenate(parts)
    return (wav + rng.randn(len(wav)) * 0.05).astype(np.float32)


class SpeechDataset(Dataset):

    def __init__(self, cfg, n, seed, train):
        self.cfg = cfg
        self.train = train
        rng = np.random.RandomState(seed)
        self.texts, self.wavs = [], []
        for _ in range(n):
            words = rng.choice(WORDS, rng.randint(cfg["min_words"], cfg["max_words"] + 1))
            text = " ".join(words)
            self.texts.append(text)
            self.wavs.append(synth(text, cfg["sample_rate"], rng))

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, i):
        mel = log_mel(torch.from_numpy(self.wavs[i]), self.cfg)
        if self.train and self.cfg["spec_augment"]:
            mel = spec_augment(mel, self.cfg, np.random)
        target = torch.tensor([CHAR2ID[c] for c in self.texts[i]])
        return mel, target, self.texts[i]


class BucketSampler(Sampler):
    """batches of like length; the order of the batches is shuffled anew each epoch"""

    def __init__(self, lengths, batch_size, seed):
        order = np.argsort(lengths, kind="stable")
        self.batches = [order[k:k + batch_size].tolist() for k in range(0, len(order), batch_size)]
        self.seed, self.epoch = seed, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        rng = np.random.RandomState(self.seed + self.epoch)
        for k in rng.permutation(len(self.batches)):
            yield self.batches[k]

    def __len__(self):
        return len(self.batches)


def collate(samples):
    samples = sorted(samples, key=lambda s: -s[0].shape[0])
    frames = torch.tensor([s[0].shape[0] for s in samples])
    target_lengths = torch.tensor([len(s[1]) for s in samples])
    x = torch.zeros(len(samples), int(frames.max()), samples[0][0].shape[1])
    for k, (mel, _, _) in enumerate(samples):
        x[k, :mel.shape[0]] = mel
    y = torch.cat([s[1] for s in samples])
    return x, frames, y, target_lengths, [s[2] for s in samples]
