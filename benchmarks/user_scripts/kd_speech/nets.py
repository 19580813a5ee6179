import torch
import torch.nn as nn
import torch.nn.functional as F

from audio import SR, mel_matrix, window


class LogMel(nn.Module):
    def __init__(self, n_fft=128, hop=64, n_mels=20, eps=1e-6):
        super().__init__()
        self.n_fft, self.hop, self.n_mels, self.eps = n_fft, hop, n_mels, eps

    def forward(self, x):
        w = window(self.n_fft).to(x.device)
        s = torch.stft(x, self.n_fft, self.hop, window=w, return_complex=True).abs().pow(2)
        m = mel_matrix(self.n_mels, self.n_fft, SR).to(x.device) @ s
        m = torch.log(m + self.eps)
        return (m - m.mean((1, 2), keepdim=True)) / (m.std((1, 2), keepdim=True) + 1e-5)


class SpecAugment(nn.Module):
    def __init__(self, f=4, t=6):
        super().__init__()
        self.f, self.t = f, t

    def forward(self, m):
        if not self.training:
            return m
        m = m.clone()
        for k in range(m.size(0)):
            f0 = torch.randint(0, m.size(1) - self.f, (1,)).item()
            t0 = torch.randint(0, max(1, m.size(2) - self.t), (1,)).item()
            m[k, f0:f0 + self.f] = 0
            m[k, :, t0:t0 + self.t] = 0
        return m


class ConvNet(nn.Module):
    def __init__(self, width, classes, depth=3):
        super().__init__()
        self.front, self.aug = LogMel(), SpecAugment()
        layers, i = [], 20
        for d in range(depth):
            layers += [nn.Conv1d(i, width, 3, padding=1), nn.BatchNorm1d(width), nn.ReLU()]
            i = width
        self.body = nn.Sequential(*layers)
        self.att = nn.Conv1d(width, 1, 1)
        self.fc = nn.Linear(width, classes)

    def forward(self, x):
        h = self.body(self.aug(self.front(x)))
        a = F.softmax(self.att(h), -1)
        return self.fc((h * a).sum(-1))
