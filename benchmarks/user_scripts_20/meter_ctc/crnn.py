from __future__ import annotations

import torch
from torch import Tensor, nn


def conv_bn(c_in: int, c_out: int, k: int = 3, p: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(c_in, c_out, k, padding=p), nn.BatchNorm2d(c_out), nn.ReLU())


class CRNN(nn.Module):
    """Shi et al. 2015 with batch norm everywhere; time step = 4 px."""

    def __init__(self, n_symbols: int, hidden: int = 256, height: int = 48) -> None:
        super().__init__()
        self.features = nn.Sequential(
            conv_bn(1, 64), nn.MaxPool2d(2, 2),
            conv_bn(64, 128), nn.MaxPool2d(2, 2),
            conv_bn(128, 256), conv_bn(256, 256), nn.MaxPool2d((2, 1)),
            conv_bn(256, 512), conv_bn(512, 512), nn.MaxPool2d((2, 1)),
        )
        rows = height // 16
        self.squeeze = nn.Linear(512 * rows, 256)
        self.rnn = nn.LSTM(256, hidden, num_layers=2, bidirectional=True, dropout=0.2)
        self.head = nn.Linear(2 * hidden, n_symbols + 1)     # 0 = blank

    def forward(self, x: Tensor) -> Tensor:
        f = self.features(x)                                  # B, C, rows, T
        b, c, r, t = f.shape
        f = f.permute(3, 0, 1, 2).reshape(t, b, c * r)
        f = self.squeeze(f)
        f, _ = self.rnn(f)
        return self.head(f)                                   # T, B, S+1

    @staticmethod
    def steps(width: int) -> int:
        return width // 4
