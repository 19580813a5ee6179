from __future__ import annotations

import torch
from torch import Tensor, nn


class DoubleConv(nn.Module):
    def __init__(self, cin: int, cout: int) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(cin, cout, kernel_size=3, padding=1),
            nn.BatchNorm2d(cout),
            nn.ReLU(inplace=True),
            nn.Conv2d(cout, cout, kernel_size=3, padding=1),
            nn.BatchNorm2d(cout),
            nn.ReLU(inplace=True),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


class Up(nn.Module):
    def __init__(self, cin: int, cout: int) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(cin, cout, kernel_size=2, stride=2)
        self.conv = DoubleConv(2 * cout, cout)

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        return self.conv(torch.cat([skip, self.up(x)], dim=1))


class UNet(nn.Module):
    def __init__(self, base: int = 64, out_channels: int = 1) -> None:
        super().__init__()
        widths = [base, base * 2, base * 4, base * 8, base * 16]
        self.inc = DoubleConv(3, widths[0])
        self.downs = nn.ModuleList(DoubleConv(a, b) for a, b in zip(widths[:-1], widths[1:]))
        self.pool = nn.MaxPool2d(2)
        self.ups = nn.ModuleList(Up(b, a) for a, b in zip(widths[-2::-1], widths[:0:-1]))
        self.outc = nn.Conv2d(widths[0], out_channels, kernel_size=1)

    def forward(self, x: Tensor) -> Tensor:
        skips = [self.inc(x)]
        for down in self.downs:
            skips.append(down(self.pool(skips[-1])))
        y = skips.pop()
        for up in self.ups:
            y = up(y, skips.pop())
        # probabilities, so that predict.py and the notebooks need no sigmoid
        return torch.sigmoid(self.outc(y))
