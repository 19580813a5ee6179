import torch
import torch.nn as nn
import torch.nn.functional as F


def double(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(inplace=True),
                         nn.Conv2d(o, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class UNet(nn.Module):
    def __init__(self, cin=1, classes=4, width=10, depth=2):
        super().__init__()
        w = [width * 2 ** i for i in range(depth + 1)]
        self.down = nn.ModuleList(double(a, b) for a, b in zip([cin] + w[:-2], w[:-1]))
        self.bottom = double(w[-2], w[-1])
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in zip(w[:-1], w[1:]))
        self.dec = nn.ModuleList(double(2 * a, a) for a in w[:-1])
        self.head = nn.Conv2d(w[0], classes, 1)

    def _go(self, x, level):
        """recursive: down, inner part, up"""
        if level == len(self.down):
            return self.bottom(x)
        skip = self.down[level](x)
        inner = self._go(F.max_pool2d(skip, 2), level + 1)
        return self.dec[level](torch.cat([skip, self.up[level](inner)], 1))

    def forward(self, x):
        return self.head(self._go(x, 0))
