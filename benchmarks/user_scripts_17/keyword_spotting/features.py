import math

import torch


def hz_to_mel(hz):
    return 2595.0 * math.log10(1.0 + hz / 700.0)


def mel_filterbank(n_mels, n_fft, rate):
    """Triangular filters, (n_mels, n_fft // 2 + 1)."""
    low, high = hz_to_mel(20.0), hz_to_mel(rate / 2)
    mels = torch.linspace(low, high, n_mels + 2)
    hz = 700.0 * (10.0 ** (mels / 2595.0) - 1.0)
    freqs = torch.linspace(0, rate / 2, n_fft // 2 + 1)
    bank = torch.zeros(n_mels, n_fft // 2 + 1)
    for m in range(n_mels):
        left, center, right = hz[m], hz[m + 1], hz[m + 2]
        up = (freqs - left) / (center - left)
        down = (right - freqs) / (right - center)
        bank[m] = torch.clamp(torch.minimum(up, down), min=0.0)
    return bank


def log_mel(signal, rate, n_fft, hop, n_mels):
    window = torch.hann_window(n_fft)
    spec = torch.stft(signal, n_fft, hop, window=window, return_complex=True).abs().pow(2)
    mel = mel_filterbank(n_mels, n_fft, rate) @ spec
    out = torch.log(mel + 1e-6)
    return (out - out.mean()) / (out.std() + 1e-5)


def spec_augment(spec, max_freq=8, max_time=20):
    """One frequency mask and one time mask (Park et al., 2019)."""
    n_mels, frames = spec.shape
    f = int(torch.randint(0, max_freq + 1, (1,)))
    f0 = int(torch.randint(0, n_mels - f + 1, (1,)))
    spec[f0:f0 + f] = 0.0
    t = int(torch.randint(0, max_time + 1, (1,)))
    t0 = int(torch.randint(0, frames - t + 1, (1,)))
    spec[:, t0:t0 + t] = 0.0
    return spec
