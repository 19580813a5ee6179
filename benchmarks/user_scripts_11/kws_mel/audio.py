"""Features in plain numpy so that the same code runs on the board."""
import numpy as np


def hz_to_mel(f):
    return 2595.0 * np.log10(1.0 + f / 700.0)


def mel_to_hz(m):
    return 700.0 * (10.0 ** (m / 2595.0) - 1.0)


def mel_filterbank(sample_rate, n_fft, n_mels, fmin=20.0, fmax=None):
    fmax = fmax or sample_rate / 2.0
    points = mel_to_hz(np.linspace(hz_to_mel(fmin), hz_to_mel(fmax), n_mels + 2))
    bins = np.floor((n_fft + 1) * points / sample_rate).astype(int)
    fb = np.zeros((n_mels, n_fft // 2 + 1))
    for m in range(1, n_mels + 1):
        left, center, right = bins[m - 1], bins[m], bins[m + 1]
        for k in range(left, center):
            fb[m - 1, k] = (k - left) / max(center - left, 1)
        for k in range(center, right):
            fb[m - 1, k] = (right - k) / max(right - center, 1)
    return fb


def log_mel(wave, sample_rate, n_fft, win_ms, hop_ms, n_mels):
    win = int(sample_rate * win_ms / 1000)
    hop = int(sample_rate * hop_ms / 1000)
    wave = np.append(wave[0], wave[1:] - 0.97 * wave[:-1])
    n_frames = 1 + (len(wave) - win) // hop
    window = np.hamming(win)
    spec = []
    for t in range(n_frames):
        frame = wave[t * hop:t * hop + win] * window
        spec.append(np.abs(np.fft.rfft(frame, n_fft)) ** 2 / n_fft)
    spec = np.array(spec)
    fb = mel_filterbank(sample_rate, n_fft, n_mels)
    mel = spec @ fb.T
    return np.log(mel + 1e-6).T  # (n_mels, n_frames)


def spec_augment(mel, n_masks, rng, max_f=6, max_t=12):
    mel = mel.copy()
    fill = mel.mean()
    for _ in range(n_masks):
        f = rng.randint(0, max_f + 1)
        f0 = rng.randint(0, mel.shape[0] - f)
        mel[f0:f0 + f] = fill
        t = rng.randint(0, max_t + 1)
        t0 = rng.randint(0, mel.shape[1] - t)
        mel[:, t0:t0 + t] = fill
    return mel
