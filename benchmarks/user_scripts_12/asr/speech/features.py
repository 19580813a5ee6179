import math

import numpy as np
import torch


def hz_to_mel(f):
    return 2595.0 * math.log10(1.0 + f / 700.0)


def mel_to_hz(m):
    return 700.0 * (10.0 ** (m / 2595.0) - 1.0)


def mel_filterbank(sr, n_fft, n_mels):
    points = [mel_to_hz(m) for m in np.linspace(hz_to_mel(20.0), hz_to_mel(sr / 2), n_mels + 2)]
    bins = [p * n_fft / sr for p in points]
    fb = torch.zeros(n_mels, n_fft // 2 + 1)
    for m in range(1, n_mels + 1):
        left, centre, right = bins[m - 1], bins[m], bins[m + 1]
        for k in range(n_fft // 2 + 1):
            up = (k - left) / max(centre - left, 1e-5)
            down = (right - k) / max(right - centre, 1e-5)
            fb[m - 1, k] = max(0.0, min(up, down))
    return fb


def log_mel(wav, cfg):
    """(samples,) -> (frames, n_mels), mean/variance normalised per utterance"""
    window = torch.hann_window(cfg["n_fft"])
    spec = torch.stft(wav, cfg["n_fft"], cfg["hop"], window=window, return_complex=True).abs() ** 2
    fb = mel_filterbank(cfg["sample_rate"], cfg["n_fft"], cfg["n_mels"])
    mel = torch.log(fb @ spec + 1e-6).t()
    return (mel - mel.mean(0)) / (mel.std(0) + 1e-5)


def spec_augment(mel, cfg, rng):
    mel = mel.clone()
    frames, n_mels = mel.shape
    for _ in range(cfg["time_masks"]):
        w = rng.randint(0, max(1, frames // 12))
        t = rng.randint(0, frames - w)
        mel[t:t + w] = 0
    for _ in range(cfg["freq_masks"]):
        w = rng.randint(0, max(1, n_mels // 6))
        f = rng.randint(0, n_mels - w)
        mel[:, f:f + w] = 0
    return mel
