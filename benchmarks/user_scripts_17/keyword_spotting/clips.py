import glob
import os
import wave

import numpy as np
import torch
from torch.utils.data import Dataset

from features import log_mel, spec_augment


class SpeechClips(Dataset):
    def __init__(self, cfg, split, train):
        self.cfg = cfg
        self.train = train
        self.files = sorted(glob.glob(os.path.join(cfg["root"], split, "*", "*.wav")))
        names = sorted({f.split(os.sep)[-2] for f in self.files})
        self.label_of = {n: i for i, n in enumerate(names)}

    def __len__(self):
        return len(self.files)

    def load(self, path):
        with wave.open(path, "rb") as f:
            raw = f.readframes(f.getnframes())
        return torch.from_numpy(np.frombuffer(raw, dtype=np.int16).astype(np.float32) / 32768.0)

    def __getitem__(self, i):
        cfg = self.cfg
        signal = self.load(self.files[i])
        if self.train:
            shift = int(torch.randint(-1600, 1601, (1,)))
            signal = torch.roll(signal, shift)
            signal = signal + 0.01 * torch.rand(1) * torch.randn(signal.shape)
        spec = log_mel(signal, cfg["sample_rate"], cfg["n_fft"], cfg["hop"], cfg["n_mels"])
        if self.train:
            spec = spec_augment(spec)
        label = self.label_of[self.files[i].split(os.sep)[-2]]
        return spec.unsqueeze(0), label
