import math
import torch


def mel_filterbank(sr, n_fft, n_mels):
    """Dreiecksfilter auf der Mel-Skala, (n_fft//2+1, n_mels)."""
    def hz2mel(f): return 2595 * math.log10(1 + f / 700)
    def mel2hz(m): return 700 * (10 ** (m / 2595) - 1)
    pts = [mel2hz(hz2mel(50) + (hz2mel(sr / 2) - hz2mel(50)) * i / (n_mels + 1)) for i in range(n_mels + 2)]
    bins = [p * n_fft / sr for p in pts]
    fb = torch.zeros(n_fft // 2 + 1, n_mels)
    for m in range(n_mels):
        lo, ce, hi = bins[m], bins[m + 1], bins[m + 2]
        for k in range(n_fft // 2 + 1):
            if lo < k <= ce:
                fb[k, m] = (k - lo) / (ce - lo)
            elif ce < k < hi:
                fb[k, m] = (hi - k) / (hi - ce)
    return fb


class LogMel(object):
    def __init__(self, sr, n_fft, hop, n_mels):
        self.sr, self.n_fft, self.hop, self.n_mels = sr, n_fft, hop, n_mels

    def __call__(self, wav):
        window = torch.hann_window(self.n_fft)
        spec = torch.stft(wav, self.n_fft, self.hop, window=window, return_complex=True).abs() ** 2
        fb = mel_filterbank(self.sr, self.n_fft, self.n_mels)
        feat = torch.log(spec.t() @ fb + 1e-6)
        return (feat - feat.mean(0)) / (feat.std(0) + 1e-5)       # CMVN pro Äußerung


class SpecAugment(object):
    """Eigener Generator: die Masken hängen nur vom Seed und der Reihenfolge der Aufrufe ab."""
    def __init__(self, seed, freq_masks, freq_width, time_masks, time_width):
        self.g = torch.Generator().manual_seed(seed)
        self.fm, self.fw, self.tm, self.tw = freq_masks, freq_width, time_masks, time_width

    def _ri(self, hi):
        return int(torch.randint(0, max(hi, 1), (1,), generator=self.g))

    def __call__(self, x):
        x = x.clone()
        T, M = x.shape
        for _ in range(self.fm):
            w = self._ri(self.fw + 1); s = self._ri(M - w)
            x[:, s:s + w] = 0
        for _ in range(self.tm):
            w = self._ri(self.tw + 1); s = self._ri(T - w)
            x[s:s + w] = 0
        return x
