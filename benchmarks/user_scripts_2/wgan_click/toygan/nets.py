import torch
from torch import nn
import torch.nn.functional as F


class EqConv(nn.Module):
    """equalized learning rate: the weight is scaled in each forward"""

    def __init__(self, i, o, k, gain=2 ** .5):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(o, i, k, k))
        self.bias = nn.Parameter(torch.zeros(o))
        self.scale = gain / (i * k * k) ** .5

    def forward(self, x):
        return F.conv2d(x, self.weight * self.scale, self.bias, padding=self.weight.shape[-1] // 2)


class Generator(nn.Module):
    def __init__(self, z, w):
        super().__init__()
        self.z = z
        self.fc = nn.Linear(z, w * 16)
        self.bn = nn.BatchNorm2d(w)
        self.c1, self.c2, self.rgb = EqConv(w, w, 3), EqConv(w, w, 3), EqConv(w, 3, 1, 1.)
        self.style = nn.Linear(z, w)

    def forward(self, z):
        x = self.bn(self.fc(z).view(z.size(0), -1, 4, 4))
        x = F.leaky_relu(self.c1(F.interpolate(x, scale_factor=2)), .2, inplace=True)
        x = F.leaky_relu(self.c2(F.interpolate(x, scale_factor=2)), .2, inplace=True)
        x = x * (1 + self.style(z))[:, :, None, None]
        return torch.tanh(self.rgb(x))


class MinibatchStd(nn.Module):
    def forward(self, x):
        s = (x.var(0, unbiased=False) + 1e-8).sqrt().mean()
        return torch.cat([x, s.expand(x.size(0), 1, x.size(2), x.size(3))], 1)


class Critic(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.c0, self.c1, self.c2 = EqConv(3, w, 3), EqConv(w, w, 3), EqConv(w + 1, w, 3)
        self.std = MinibatchStd()
        self.fc = nn.Linear(w * 16, 1)

    def forward(self, x):
        x = F.leaky_relu(self.c0(x), .2)
        x = F.avg_pool2d(F.leaky_relu(self.c1(x), .2), 2)
        x = F.avg_pool2d(F.leaky_relu(self.c2(self.std(x)), .2), 2)
        return self.fc(x.flatten(1)).squeeze(1)
