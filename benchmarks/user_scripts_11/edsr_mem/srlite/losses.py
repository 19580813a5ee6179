from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def gaussian(size: int, sigma: float) -> Tensor:
    g = torch.tensor([math.exp(-(x - size // 2) ** 2 / (2 * sigma ** 2)) for x in range(size)])
    return g / g.sum()


def create_window(size: int, channel: int) -> Tensor:
    line = gaussian(size, 1.5).unsqueeze(1)
    return line.mm(line.t()).expand(channel, 1, size, size).contiguous()


def ssim(a: Tensor, b: Tensor, window_size: int = 11) -> Tensor:
    ch = a.size(1)
    window = create_window(window_size, ch).to(a.device)
    pad = window_size // 2
    mu1 = F.conv2d(a, window, padding=pad, groups=ch)
    mu2 = F.conv2d(b, window, padding=pad, groups=ch)
    s1 = F.conv2d(a * a, window, padding=pad, groups=ch) - mu1 ** 2
    s2 = F.conv2d(b * b, window, padding=pad, groups=ch) - mu2 ** 2
    s12 = F.conv2d(a * b, window, padding=pad, groups=ch) - mu1 * mu2
    c1, c2 = 0.01 ** 2, 0.03 ** 2
    return (((2 * mu1 * mu2 + c1) * (2 * s12 + c2)) / ((mu1 ** 2 + mu2 ** 2 + c1) * (s1 + s2 + c2))).mean()


class EdgeLoss(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        kx = torch.tensor([[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]]).repeat(3, 1, 1, 1).to(a.device)
        ky = kx.transpose(2, 3)
        ga = F.conv2d(a, kx, padding=1, groups=3), F.conv2d(a, ky, padding=1, groups=3)
        gb = F.conv2d(b, kx, padding=1, groups=3), F.conv2d(b, ky, padding=1, groups=3)
        return F.l1_loss(ga[0], gb[0]) + F.l1_loss(ga[1], gb[1])


class SRLoss(nn.Module):
    """Charbonnier + a bit of SSIM + edges"""

    def __init__(self, w_ssim: float = 0.1, w_edge: float = 0.05):
        super().__init__()
        self.w_ssim = w_ssim
        self.w_edge = w_edge
        self.edge = EdgeLoss()

    def forward(self, sr: Tensor, hr: Tensor) -> Tensor:
        charb = torch.sqrt((sr - hr) ** 2 + 1e-6).mean()
        return charb + self.w_ssim * (1 - ssim(sr, hr)) + self.w_edge * self.edge(sr, hr)
