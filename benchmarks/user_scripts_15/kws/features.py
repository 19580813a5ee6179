import numpy as np

# 30 ms windows every 10 ms, 40 mel bands; same numbers as in the Hello Edge paper
SAMPLE_RATE = 16000
WIN = 480
HOP = 160
N_FFT = 512
N_MELS = 40


def hz2mel(hz):
    return 2595. * np.log10(1. + hz / 700.)


def mel2hz(mel):
    return 700. * (10. ** (mel / 2595.) - 1.)


def mel_filters(n_fft, n_mels, fmin=20., fmax=7600.):
    pts = mel2hz(np.linspace(hz2mel(fmin), hz2mel(fmax), n_mels + 2))
    bins = np.floor((n_fft + 1) * pts / SAMPLE_RATE).astype(int)
    fb = np.zeros((n_mels, n_fft // 2 + 1))
    for m in range(1, n_mels + 1):
        for k in range(bins[m - 1], bins[m]):
            fb[m - 1, k] = (k - bins[m - 1]) / float(bins[m] - bins[m - 1])
        for k in range(bins[m], bins[m + 1]):
            fb[m - 1, k] = (bins[m + 1] - k) / float(bins[m + 1] - bins[m])
    return fb


def logmel(x):
    """(16000,) float -> (98, 40) float32"""
    x = np.append(x[0], x[1:] - 0.97 * x[:-1])
    fb = mel_filters(N_FFT, N_MELS)
    window = np.hamming(WIN)
    spec = []
    for start in range(0, len(x) - WIN + 1, HOP):
        frame = x[start:start + WIN] * window
        spec.append(np.abs(np.fft.rfft(frame, N_FFT)) ** 2)
    spec = np.array(spec)
    return np.log(spec.dot(fb.T) + 1e-6).astype(np.float32)
