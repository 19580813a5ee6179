"""Spoken words as chords of two tones each, background noises and the two lists."""

import wave
from pathlib import Path

import numpy as np

rng = np.random.default_rng(0)
root = Path("data")


def write(path, samples):
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes((np.clip(samples, -1, 1) * 32767).astype(np.int16).tobytes())


lists = {"validation_list.txt": [], "testing_list.txt": []}
for k, word in enumerate(("down", "left", "right", "up")):
    for n in range(24):
        time = np.arange(16000 if n % 5 else 15000) / 16000
        tones = [rng.uniform(0.95, 1.05) * f for f in (300 + 200 * k, 1500 - 250 * k)]
        sound = sum(np.sin(2 * np.pi * f * time) for f in tones) * np.hanning(len(time))
        write(root / word / f"{n:02d}.wav", 0.2 * sound + rng.normal(0, 0.02, len(time)))
        if n < 8:
            lists["validation_list.txt" if n < 4 else "testing_list.txt"].append(f"{word}/{n:02d}.wav")
for n in range(2):
    write(root / "_background_noise_" / f"{n}.wav", rng.normal(0, 0.3, 40000))
for name, lines in lists.items():
    (root / name).write_text("\n".join(lines) + "\n")
