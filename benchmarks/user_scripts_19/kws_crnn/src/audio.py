"""Mel features without torchaudio (the cluster image doesn't have it)."""
import math
import wave

import numpy as np
import torch

SR = 16000


def read_wav(path):
    with wave.open(path, "rb") as w:
        assert w.getframerate() == SR and w.getnchannels() == 1
        raw = w.readframes(w.getnframes())
    x = np.frombuffer(raw, dtype=np.int16).astype(np.float32) / 32768.0
    if len(x) < SR:
        x = np.pad(x, (0, SR - len(x)))
    return x[:SR]


def hz_to_mel(f):
    return 2595.0 * math.log10(1.0 + f / 700.0)


def mel_to_hz(m):
    return 700.0 * (10.0 ** (m / 2595.0) - 1.0)


def mel_filters(n_fft, n_mels, fmin=20.0, fmax=7600.0):
    """triangular filters, [n_fft // 2 + 1, n_mels]"""
    lo, hi = hz_to_mel(fmin), hz_to_mel(fmax)
    points = torch.tensor([mel_to_hz(lo + (hi - lo) * i / (n_mels + 1)) for i in range(n_mels + 2)])
    freqs = torch.linspace(0, SR / 2, n_fft // 2 + 1).unsqueeze(1)
    left, center, right = points[:-2], points[1:-1], points[2:]
    up = (freqs - left) / (center - left)
    down = (right - freqs) / (right - center)
    fb = torch.clamp(torch.minimum(up, down), min=0.0)
    return fb


def log_mel(x, n_fft=512, hop=160, n_mels=64):
    window = torch.hann_window(n_fft)
    spec = torch.stft(x, n_fft, hop, window=window, return_complex=True)
    power = spec.abs() ** 2
    mel = power.t() @ mel_filters(n_fft, n_mels)
    # log of the power: 1e-6 is far below bf16/fp16 range of what is left, keep fp32
    return torch.log(mel + 1e-6).t()
