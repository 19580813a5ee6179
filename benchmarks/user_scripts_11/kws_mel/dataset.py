import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

import audio


def synth_word(rng, label, cfg):
    """a 'word' is a chirp pair with harmonics, where and how long it is varies"""
    n = int(cfg.sample_rate * cfg.clip_seconds)
    t = np.arange(n) / cfg.sample_rate
    word = np.random.RandomState(1000 + label)
    f = word.uniform(200, 2400, size=4) * rng.uniform(0.92, 1.08)
    start = int(rng.uniform(0.1, 0.3) * n)
    mid = start + int(rng.uniform(0.15, 0.25) * n)
    end = mid + int(rng.uniform(0.15, 0.25) * n)
    x = np.zeros(n)
    for a, b, f0, f1 in ((start, mid, f[0], f[1]), (mid, end, f[2], f[3])):
        freq = np.linspace(f0, f1, b - a)
        phase = 2 * np.pi * np.cumsum(freq) / cfg.sample_rate
        env = np.hanning(b - a)
        x[a:b] += env * (np.sin(phase) + 0.5 * np.sin(2 * phase) + 0.25 * np.sin(3 * phase))
    x = x * rng.uniform(0.1, 0.4) + rng.randn(n) * 0.03
    return (np.clip(x, -1, 1) * 32767).astype(np.int16)


def make_clips(n, cfg, seed):
    rng = np.random.RandomState(seed)
    labels = rng.randint(0, cfg.n_classes, size=n)
    clips = np.stack([synth_word(rng, y, cfg) for y in labels])
    return clips, labels


class SpeechCommands(Dataset):
    def __init__(self, clips, labels, cfg, train):
        self.clips = clips
        self.labels = labels
        self.cfg = cfg
        self.train = train
        n = clips.shape[1]
        noise_rng = np.random.RandomState(5)
        self.noises = [np.cumsum(noise_rng.randn(n * 4)) for _ in range(4)]
        self.noises = [x / np.abs(x).max() for x in self.noises]

    def __len__(self):
        return len(self.labels)

    def augment(self, wave, rng):
        shift = int(self.cfg.sample_rate * self.cfg.shift_ms / 1000)
        s = rng.randint(-shift, shift + 1)
        wave = np.roll(wave, s)
        if s > 0:
            wave[:s] = 0
        elif s < 0:
            wave[s:] = 0
        if rng.rand() < self.cfg.noise_prob:
            noise = self.noises[rng.randint(len(self.noises))]
            start = rng.randint(0, len(noise) - len(wave))
            wave = wave + noise[start:start + len(wave)] * rng.uniform(0, self.cfg.noise_gain)
        return wave

    def __getitem__(self, i):
        c = self.cfg
        rng = np.random.RandomState(torch.randint(0, 2 ** 31 - 1, (1,)).item())
        wave = self.clips[i].astype(np.float64) / 32768.0
        if self.train:
            wave = self.augment(wave, rng)
        mel = audio.log_mel(wave, c.sample_rate, c.n_fft, c.win_ms, c.hop_ms, c.n_mels)
        mel = (mel - mel.mean()) / (mel.std() + 1e-5)
        if self.train:
            mel = audio.spec_augment(mel, c.spec_masks, rng)
        return torch.tensor(mel, dtype=torch.float32).unsqueeze(0), int(self.labels[i])


def make_loaders(cfg):
    train_set = SpeechCommands(*make_clips(cfg.n_train, cfg, seed=1), cfg, train=True)
    valid_set = SpeechCommands(*make_clips(cfg.n_valid, cfg, seed=2), cfg, train=False)
    train_loader = DataLoader(train_set, batch_size=cfg.batch_size, shuffle=True, drop_last=True,
                              num_workers=cfg.workers, pin_memory=True)
    valid_loader = DataLoader(valid_set, batch_size=cfg.batch_size, num_workers=cfg.workers, pin_memory=True)
    return train_loader, valid_loader
