"""Writes one-second wav files: every "word" is a fixed sequence of vowel-like tones."""
import os
import wave

import numpy as np


def render(word, rng, rate):
    n = rate
    t = np.arange(n) / rate
    word_rng = np.random.default_rng(1000 + word)
    sig = np.zeros(n)
    f0 = rng.uniform(90, 230)
    begin = rng.uniform(0.05, 0.2)
    for _ in range(4):
        formants = word_rng.uniform(300, 3200, size=3)
        length = word_rng.uniform(0.1, 0.2)
        env = np.exp(-0.5 * ((t - begin - length / 2) / (length / 3)) ** 2)
        for f in formants:
            harmonic = np.round(f / f0) * f0
            sig += env * np.sin(2 * np.pi * harmonic * t + rng.uniform(0, 6.28))
        begin += length
    sig = sig / (np.abs(sig).max() + 1e-6) * rng.uniform(0.3, 0.9)
    sig += rng.normal(0, 0.02, size=n)
    return (np.clip(sig, -1, 1) * 32767).astype(np.int16)


def write_wav(path, samples, rate):
    with wave.open(path, "wb") as f:
        f.setnchannels(1)
        f.setsampwidth(2)
        f.setframerate(rate)
        f.writeframes(samples.tobytes())


def build(root, split, per_word, n_words, rate, seed):
    rng = np.random.default_rng(seed)
    for word in range(n_words):
        folder = os.path.join(root, split, f"word{word:02d}")
        os.makedirs(folder, exist_ok=True)
        for i in range(per_word):
            path = os.path.join(folder, f"{i:05d}.wav")
            samples = render(word, rng, rate)
            if not os.path.exists(path):
                write_wav(path, samples, rate)
