from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class MeanShift(nn.Conv2d):
    """subtracts (sign=-1) or adds the mean colour"""

    def __init__(self, mean: tuple[float, float, float], sign: int = -1):
        super().__init__(3, 3, kernel_size=1)
        self.weight.data = torch.eye(3).view(3, 3, 1, 1)
        self.bias.data = sign * torch.tensor(mean)
        for p in self.parameters():
            p.requires_grad = False


class ChannelAttention(nn.Module):
    def __init__(self, ch: int, reduction: int = 8):
        super().__init__()
        self.fc = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(ch, ch // reduction, 1), nn.ReLU(True),
                                nn.Conv2d(ch // reduction, ch, 1), nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        return x * self.fc(x)


class ResBlock(nn.Module):
    def __init__(self, ch: int, res_scale: float):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(ch, ch, 3, padding=1), nn.ReLU(True), nn.Conv2d(ch, ch, 3, padding=1),
                                  ChannelAttention(ch))
        self.res_scale = res_scale

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) * self.res_scale


class SRNet(nn.Module):
    """EDSR with channel attention"""

    def __init__(self, scale: int, ch: int = 64, n_blocks: int = 16, res_scale: float = 0.2):
        super().__init__()
        mean = (0.46, 0.46, 0.46)
        self.sub_mean = MeanShift(mean)
        self.add_mean = MeanShift(mean, 1)
        self.head = nn.Conv2d(3, ch, 3, padding=1)
        self.blocks = nn.ModuleList([ResBlock(ch, res_scale) for _ in range(n_blocks)])
        self.fuse = nn.Conv2d(ch, ch, 3, padding=1)
        up: list[nn.Module] = []
        for _ in range(int(math.log2(scale))):
            up += [nn.Conv2d(ch, 4 * ch, 3, padding=1), nn.PixelShuffle(2)]
        self.tail = nn.Sequential(*up, nn.Conv2d(ch, 3, 3, padding=1))

    def forward(self, x: Tensor) -> Tensor:
        x = self.head(self.sub_mean(x))
        y = x
        for block in self.blocks:
            y = block(y)
        return self.add_mean(self.tail(self.fuse(y) + x))
