import torch
from torch import nn
import torch.nn.functional as F

from .registry import MODELS, register


def cbr(i, o, k=3):
    return nn.Sequential(nn.Conv2d(i, o, k, padding=k // 2), nn.BatchNorm2d(o), nn.ReLU(True))


class Hour(nn.Module):
    def __init__(self, depth, c):
        super().__init__()
        self.skip, self.down, self.up = cbr(c, c)[:2], cbr(c, c), cbr(c, c)
        self.inner = Hour(depth - 1, c) if depth > 1 else cbr(c, c)

    def forward(self, x):
        y = self.down(F.max_pool2d(x, 2))
        y = F.interpolate(self.up(self.inner(y)), scale_factor=2)
        return self.skip(x).add_(y)


@register(MODELS, 'hourglass')
class Hourglass(nn.Module):
    """every stack gives heat maps; the read-out conv is shared by all stacks"""

    def __init__(self, joints, STACKS, WIDTH, **_):
        super().__init__()
        self.stem = nn.Sequential(cbr(3, WIDTH), nn.MaxPool2d(2))
        self.hours = nn.ModuleList([Hour(2, WIDTH) for _ in range(STACKS)])
        read = nn.Conv2d(WIDTH, joints, 1)
        nn.init.normal_(read.weight, std=.01)
        self.read = nn.ModuleList([read] * STACKS)
        self.back = nn.ModuleList([nn.Conv2d(joints, WIDTH, 1) for _ in range(STACKS - 1)])

    def forward(self, x):
        x = self.stem(x)
        outs = []
        for k, h in enumerate(self.hours):
            y = h(x)
            m = self.read[k](y)
            outs.append(m)
            if k < len(self.back):
                x = x + y + self.back[k](m)
        return outs


def soft_argmax(heat, beta=25.0):
    """sub-pixel position in heat map pixels, (n, joints, 2) as x, y.  Used by tests and by the evaluation."""
    n, j, h, w = heat.shape
    p = (beta * heat.view(n, j, -1)).softmax(-1).view(n, j, h, w)
    xs = torch.arange(w).float().to(heat.device)
    ys = torch.arange(h).float().to(heat.device)
    return torch.stack([(p.sum(2) * xs).sum(-1), (p.sum(3) * ys).sum(-1)], -1)
