"""Synthetic 'speech commands': every word is a sequence of chirps, speakers differ in pitch and tempo."""
import numpy as np
import torch
from torch.utils.data import Dataset

SR = 4000
WORDS = ['yes', 'no', 'up', 'down', 'stop', 'go']
PATTERNS = [[(300, 700), (700, 900)], [(900, 400)], [(250, 1200)], [(1200, 250)], [(500, 500), (1000, 1000), (500, 500)], [(800, 1100), (400, 300)]]


def synth(word, pitch, tempo, rng):
    segs = []
    for f0, f1 in PATTERNS[word]:
        n = int(SR * 0.22 * tempo)
        f = np.linspace(f0, f1, n) * pitch
        segs.append(np.sin(2 * np.pi * np.cumsum(f) / SR) * np.hanning(n))
    wav = np.concatenate(segs)
    out = np.zeros(SR, dtype=np.float32)
    start = rng.randint(0, max(1, SR - len(wav)))
    out[start:start + len(wav)] = wav[:SR - start]
    return out + 0.15 * rng.randn(SR).astype(np.float32)


def make_corpus(n_speakers, utts, seed):
    rng = np.random.RandomState(seed)
    wavs, labels, speakers = [], [], []
    for s in range(n_speakers):
        pitch, tempo = rng.uniform(0.75, 1.3), rng.uniform(0.8, 1.2)
        for _ in range(utts):
            w = rng.randint(len(WORDS))
            wavs.append(synth(w, pitch, tempo, rng))
            labels.append(w)
            speakers.append(s)
    return np.stack(wavs), np.array(labels), np.array(speakers)


def hz_to_mel(f):
    return 2595 * np.log10(1 + f / 700.0)


def mel_to_hz(m):
    return 700 * (10 ** (m / 2595.0) - 1)


def mel_filterbank(n_fft, n_mels):
    pts = mel_to_hz(np.linspace(hz_to_mel(60), hz_to_mel(SR / 2), n_mels + 2))
    bins = np.floor((n_fft + 1) * pts / SR).astype(int)
    fb = np.zeros((n_mels, n_fft // 2 + 1))
    for m in range(1, n_mels + 1):
        l, c, r = bins[m - 1], bins[m], bins[m + 1]
        for k in range(l, c):
            fb[m - 1, k] = (k - l) / max(c - l, 1)
        for k in range(c, r):
            fb[m - 1, k] = (r - k) / max(r - c, 1)
    return fb


def mfcc(wav, n_fft=256, hop=100, n_mels=24, n_mfcc=16):
    frames = []
    for start in range(0, len(wav) - n_fft + 1, hop):
        frame = wav[start:start + n_fft] * np.hamming(n_fft)
        frames.append(np.abs(np.fft.rfft(frame)) ** 2)
    power = np.array(frames)
    logmel = np.log(power.dot(mel_filterbank(n_fft, n_mels).T) + 1e-6)
    k = np.arange(n_mfcc)[:, None]
    dct = np.cos(np.pi * k * (2 * np.arange(n_mels)[None] + 1) / (2 * n_mels)) * np.sqrt(2.0 / n_mels)
    feats = logmel.dot(dct.T)
    return (feats - feats.mean(0)) / (feats.std(0) + 1e-5)


class KeywordDataset(Dataset):
    def __init__(self, wavs, labels, augment=False):
        self.wavs, self.labels, self.augment = wavs, labels, augment

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        wav = self.wavs[i]
        if self.augment:
            wav = np.roll(wav, np.random.randint(-400, 401))
            wav = wav + np.random.uniform(0, 0.1) * np.random.randn(len(wav))
        return torch.tensor(mfcc(wav)).unsqueeze(0), torch.tensor(self.labels[i])
