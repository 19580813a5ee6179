from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


def conv_block(cin: int, cout: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.SiLU(inplace=True),
        nn.Conv2d(cout, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.SiLU(inplace=True),
    )


def add_coords(x: torch.Tensor) -> torch.Tensor:
    """CoordConv (Liu et al. 2018): two extra channels with the pixel position in [-1, 1]."""
    b, _, h, w = x.shape
    ys = torch.linspace(-1, 1, h).view(1, 1, h, 1).expand(b, 1, h, w).to(x.device)
    xs = torch.linspace(-1, 1, w).view(1, 1, 1, w).expand(b, 1, h, w).to(x.device)
    return torch.cat([x, ys, xs], dim=1)


class UNet(nn.Module):
    def __init__(self, n_classes: int, base: int = 48, depth: int = 4):
        super().__init__()
        widths = [base * 2 ** i for i in range(depth + 1)]
        self.stem = conv_block(3, widths[0])
        self.down = nn.ModuleList(conv_block(widths[i], widths[i + 1]) for i in range(depth))
        self.up = nn.ModuleList(nn.ConvTranspose2d(widths[i + 1], widths[i], 2, 2) for i in reversed(range(depth)))
        self.fuse = nn.ModuleList(conv_block(2 * widths[i], widths[i]) for i in reversed(range(depth)))
        self.head = nn.Conv2d(widths[0], n_classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(add_coords(x))
        skips = []
        for block in self.down:
            skips.append(x)
            x = block(F.max_pool2d(x, 2))
        for up, fuse in zip(self.up, self.fuse):
            x = fuse(torch.cat([up(x), skips.pop()], dim=1))
        return self.head(x)
