"""Synthetic 'spoken digits': each character is a pair of tones. Features: log-mel like spectrogram."""
import math
import numpy as np
import torch
from torch.utils.data import Dataset

CHARS = "_ abcdefgh"     # 0 is blank
SR = 4000


def synth(text, rng):
    parts = []
    for ch in text:
        k = CHARS.index(ch)
        n = rng.randint(240, 420)
        t = np.arange(n) / SR
        if ch == " ":
            parts.append(np.zeros(n))
        else:
            parts.append(np.sin(2 * np.pi * (150 + 120 * k) * t) + 0.5 * np.sin(2 * np.pi * (300 + 170 * k) * t))
    wav = np.concatenate(parts)
    return (wav + 0.05 * rng.randn(len(wav))).astype(np.float32)


def mel_matrix(n_fft, n_mels):
    fb = torch.zeros(n_fft // 2 + 1, n_mels)
    centers = np.linspace(0, n_fft // 2, n_mels + 2)
    for m in range(n_mels):
        for k in range(n_fft // 2 + 1):
            up = (k - centers[m]) / (centers[m + 1] - centers[m])
            down = (centers[m + 2] - k) / (centers[m + 2] - centers[m + 1])
            fb[k, m] = max(0.0, min(up, down))
    return fb


def features(wav, n_fft=128, hop=40, n_mels=24):
    window = torch.hann_window(n_fft)
    spec = torch.stft(wav, n_fft, hop, window=window, return_complex=True).abs() ** 2
    mel = torch.matmul(spec.t(), mel_matrix(n_fft, n_mels))
    return torch.log(mel + 1e-6)


class SpeechDataset(Dataset):
    def __init__(self, n, seed, spec_augment=False):
        rng = np.random.RandomState(seed)
        self.texts = ["".join(rng.choice(list(CHARS[1:]), rng.randint(3, 9))).strip() or "a" for _ in range(n)]
        self.wavs = [synth(t, rng) for t in self.texts]
        self.spec_augment = spec_augment

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, i):
        feat = features(torch.from_numpy(self.wavs[i]))
        feat = (feat - feat.mean(0)) / (feat.std(0) + 1e-5)
        if self.spec_augment:
            f0 = np.random.randint(0, 20)
            feat[:, f0:f0 + np.random.randint(0, 4)] = 0
            t0 = np.random.randint(0, len(feat))
            feat[t0:t0 + np.random.randint(0, 6)] = 0
        return feat, torch.tensor([CHARS.index(c) for c in self.texts[i]])


def collate(batch):
    batch = sorted(batch, key=lambda b: len(b[0]), reverse=True)
    feats = torch.nn.utils.rnn.pad_sequence([b[0] for b in batch], batch_first=True)
    targets = torch.cat([b[1] for b in batch])
    in_lens = torch.IntTensor([len(b[0]) for b in batch])
    tgt_lens = torch.IntTensor([len(b[1]) for b in batch])
    return feats, targets, in_lens, tgt_lens
