from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from semi.registry import MODELS, register


class Basic(nn.Module):
    def __init__(self, i: int, o: int, stride: int, drop: float):
        super().__init__()
        self.bn1 = nn.BatchNorm2d(i, momentum=0.01)
        self.conv1 = nn.Conv2d(i, o, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(o, momentum=0.01)
        self.conv2 = nn.Conv2d(o, o, 3, 1, 1, bias=False)
        self.short = nn.Conv2d(i, o, 1, stride, bias=False) if i != o else None
        self.drop = drop

    def forward(self, x: Tensor) -> Tensor:
        y = F.leaky_relu(self.bn1(x), 0.1)
        res = x if self.short is None else self.short(y)
        y = F.leaky_relu(self.bn2(self.conv1(y)), 0.1)
        if self.drop > 0:
            y = F.dropout(y, self.drop, self.training)
        return self.conv2(y) + res


@register(MODELS)
class WideResNet(nn.Module):
    def __init__(self, num_classes: int, depth: int = 28, widen: int = 2, drop: float = 0.0):
        super().__init__()
        n = (depth - 4) // 6
        ch = [16, 16 * widen, 32 * widen, 64 * widen]
        layers: list[nn.Module] = [nn.Conv2d(3, ch[0], 3, 1, 1, bias=False)]
        for k in range(3):
            for j in range(n):
                layers.append(Basic(ch[k] if j == 0 else ch[k + 1], ch[k + 1], 2 if (j == 0 and k > 0) else 1, drop))
        self.body = nn.Sequential(*layers)
        self.bn = nn.BatchNorm2d(ch[3], momentum=0.01)
        self.fc = nn.Linear(ch[3], num_classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode='fan_out', nonlinearity='leaky_relu')

    def forward(self, x: Tensor) -> Tensor:
        x = F.leaky_relu(self.bn(self.body(x)), 0.1)
        return self.fc(x.mean((2, 3)))
