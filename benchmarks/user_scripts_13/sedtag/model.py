import math
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.cuda.amp import autocast


def mel_matrix(n_mels, n_fft, sr):
    mel = lambda f: 2595 * math.log10(1 + f / 700)
    inv = lambda m: 700 * (10 ** (m / 2595) - 1)
    lo, hi = mel(50), mel(sr / 2)
    pts = [inv(lo + (hi - lo) * i / (n_mels + 1)) for i in range(n_mels + 2)]
    fb = torch.zeros(n_fft // 2 + 1, n_mels)
    freqs = torch.arange(n_fft // 2 + 1).float() * sr / n_fft
    for m in range(n_mels):
        a, b, c = pts[m:m + 3]
        fb[:, m] = torch.clamp(torch.min((freqs - a) / (b - a), (c - freqs) / (c - b)), min=0)
    return fb


class LogMel(nn.Module):
    def __init__(self, sr, n_fft, hop, n_mels):
        super().__init__()
        self.n_fft, self.hop = n_fft, hop
        self.fb = mel_matrix(n_mels, n_fft, sr)
        self.bn = nn.BatchNorm1d(n_mels)

    def forward(self, wav):
        window = torch.hann_window(self.n_fft)
        # power spectra overflow in half precision
        with autocast(enabled=False):
            spec = torch.stft(wav.float(), self.n_fft, self.hop, window=window.to(wav.device), return_complex=True)
            power = spec.real ** 2 + spec.imag ** 2
            x = torch.log(power.transpose(1, 2) @ self.fb.to(wav.device) + 1e-6)
        return self.bn(x.transpose(1, 2)).unsqueeze(1)     # B, 1, mel, T


def spec_augment(x, n_freq, n_time):
    for i in range(x.size(0)):
        for _ in range(2):
            w = random.randint(0, n_freq)
            f = random.randint(0, x.size(2) - w)
            x[i, :, f:f + w, :] = 0
            w = random.randint(0, n_time)
            t = random.randint(0, x.size(3) - w)
            x[i, :, :, t:t + w] = 0
    return x


class ConvBlock(nn.Module):
    def __init__(self, cin, cout, pool=True):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(cout)
        self.pool = pool

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        return F.avg_pool2d(x, 2) if self.pool else x


class Tagger(nn.Module):
    """PANNs style CNN with attention over time"""

    def __init__(self, args, n_class):
        super().__init__()
        self.mel = LogMel(args.sr, args.n_fft, args.hop, args.n_mels)
        self.mask = (args.n_mels // 8, args.time_mask)
        w = args.width
        self.blocks = nn.ModuleList([ConvBlock(1, w), ConvBlock(w, 2 * w), ConvBlock(2 * w, 4 * w), ConvBlock(4 * w, 8 * w, False)])
        self.drop = nn.Dropout(args.dropout)
        self.att = nn.Linear(8 * w, n_class)
        self.cla = nn.Linear(8 * w, n_class)

    def forward(self, wav):
        x = self.mel(wav)
        if self.training:
            x = spec_augment(x, *self.mask)
        for b in self.blocks:
            x = b(x)
        x = self.drop(x.mean(2).transpose(1, 2))            # B, T, C
        a = torch.softmax(torch.tanh(self.att(x)), dim=1)   # who counts when
        return torch.sigmoid((a * self.cla(x)).sum(1))
