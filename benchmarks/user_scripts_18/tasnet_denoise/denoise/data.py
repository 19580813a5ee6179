import glob
import os
import wave

import numpy as np
import torch
from torch.utils.data import Dataset


def read_wav(path):
    with wave.open(path, "rb") as f:
        raw = f.readframes(f.getnframes())
    return np.frombuffer(raw, dtype=np.int16).astype(np.float32) / 32768.0


def rms(x):
    return np.sqrt(np.mean(x ** 2) + 1e-8)


class MixDataset(Dataset):
    """Dynamic mixing: every epoch pairs a clean crop with a new noise crop, SNR and room."""

    def __init__(self, root, files, cfg, seed):
        self.files = files
        self.noises = sorted(glob.glob(os.path.join(root, "noise", "*.wav")))
        self.rirs = sorted(glob.glob(os.path.join(root, "rir", "*.wav")))
        self.cfg = cfg
        self.seed = seed
        self.epoch = 0
        self.seg = int(cfg["segment_sec"] * cfg["sample_rate"])

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        # one generator per (epoch, item): the mix does not depend on the number of workers
        rng = np.random.default_rng((self.seed, self.epoch, i))
        clean = read_wav(self.files[i])
        start = rng.integers(0, len(clean) - self.seg + 1)
        clean = clean[start:start + self.seg]

        wet = clean
        if rng.random() < self.cfg["p_reverb"]:
            h = read_wav(self.rirs[rng.integers(len(self.rirs))])
            wet = np.convolve(clean, h)[:self.seg]
            wet = wet * rms(clean) / rms(wet)

        noise = read_wav(self.noises[rng.integers(len(self.noises))])
        start = rng.integers(0, len(noise) - self.seg + 1)
        noise = noise[start:start + self.seg]

        snr = rng.uniform(*self.cfg["snr_db"])
        noise = noise * rms(wet) / rms(noise) * 10 ** (-snr / 20)
        mix = wet + noise
        peak = max(np.abs(mix).max(), 1e-4)
        gain = rng.uniform(0.3, 0.95) / peak
        return torch.from_numpy((mix * gain).astype(np.float32)), torch.from_numpy((clean * gain).astype(np.float32))


class ValidDataset(Dataset):
    """Whole utterances with a fixed noise each, mixed once when constructed."""

    def __init__(self, root, files, cfg, seed):
        rng = np.random.default_rng(seed)
        noises = [read_wav(p) for p in sorted(glob.glob(os.path.join(root, "noise", "*.wav")))[:50]]
        self.pairs = []
        for path in files:
            clean = read_wav(path)
            noise = noises[rng.integers(len(noises))]
            noise = np.resize(noise, len(clean))
            snr = rng.uniform(*cfg["snr_db"])
            mix = clean + noise * rms(clean) / rms(noise) * 10 ** (-snr / 20)
            self.pairs.append((torch.from_numpy(mix.astype(np.float32)), torch.from_numpy(clean)))

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, i):
        return self.pairs[i]
