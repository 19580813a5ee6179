"""Stand-in corpus: writes clean/, noise/ and rir/ as 16 bit mono wav files."""
import os
import wave

import numpy as np


def write_wav(path, x, sr):
    pcm = (np.clip(x, -1, 1) * 32767).astype(np.int16)
    with wave.open(path, "wb") as f:
        f.setnchannels(1)
        f.setsampwidth(2)
        f.setframerate(sr)
        f.writeframes(pcm.tobytes())


def voice(rng, n, sr):
    """Glottal-like harmonics with a wandering pitch and a syllable envelope."""
    t = np.arange(n) / sr
    f0 = rng.uniform(90, 240) * (1 + 0.08 * np.sin(2 * np.pi * rng.uniform(0.3, 1.2) * t))
    phase = 2 * np.pi * np.cumsum(f0) / sr
    x = np.zeros(n)
    for k in range(1, 13):
        x += np.sin(k * phase + rng.uniform(0, 6.28)) / k ** rng.uniform(0.8, 1.6)
    env = np.clip(np.sin(2 * np.pi * rng.uniform(2, 4) * t + rng.uniform(0, 6.28)), 0, None)
    x = x * env
    return 0.5 * x / (np.abs(x).max() + 1e-6)


def noise(rng, n):
    spec = np.fft.rfft(rng.standard_normal(n))
    f = np.arange(len(spec)) + 1.0
    x = np.fft.irfft(spec / f ** rng.uniform(0.0, 0.8), n)
    return 0.5 * x / np.abs(x).max()


def rir(rng, taps):
    h = rng.standard_normal(taps) * np.exp(-np.arange(taps) / (taps * rng.uniform(0.08, 0.2)))
    h[0] = 4.0
    return h / np.abs(h).max()


def build(root, cfg, seed):
    rng = np.random.default_rng(seed)
    sr = cfg["sample_rate"]
    for sub in ("clean", "noise", "rir"):
        os.makedirs(os.path.join(root, sub), exist_ok=True)
    for i in range(cfg["n_clean"]):
        n = int(rng.uniform(*cfg["clean_sec"]) * sr)
        write_wav(os.path.join(root, "clean", f"{i:05d}.wav"), voice(rng, n, sr), sr)
    for i in range(cfg["n_noise"]):
        write_wav(os.path.join(root, "noise", f"{i:04d}.wav"), noise(rng, int(cfg["noise_sec"] * sr)), sr)
    for i in range(cfg["n_rir"]):
        write_wav(os.path.join(root, "rir", f"{i:04d}.wav"), rir(rng, cfg["rir_taps"]), sr)
