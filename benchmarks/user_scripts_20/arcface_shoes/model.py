import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class BasicBlock(nn.Module):
    def __init__(self, c_in: int, c_out: int, stride: int = 1):
        super().__init__()
        self.conv1 = nn.Conv2d(c_in, c_out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(c_out)
        self.conv2 = nn.Conv2d(c_out, c_out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(c_out)
        self.short = None
        if stride != 1 or c_in != c_out:
            self.short = nn.Sequential(
                nn.Conv2d(c_in, c_out, 1, stride, bias=False), nn.BatchNorm2d(c_out)
            )

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        s = x if self.short is None else self.short(x)
        return F.relu(y + s, inplace=True)


class GeM(nn.Module):
    """generalised mean pooling, p is learned"""

    def __init__(self, p: float = 3.0, eps: float = 1e-6):
        super().__init__()
        self.p = nn.Parameter(torch.tensor(p))
        self.eps = eps

    def forward(self, x):
        # keep this in full precision, x**3 with a small eps is not nice in half
        return x.float().clamp(min=self.eps).pow(self.p).mean((2, 3)).pow(1.0 / self.p)


class Embedder(nn.Module):
    def __init__(self, width: int = 64, dim: int = 512, blocks=(3, 4, 6, 3)):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        layers = []
        c = width
        for i, n in enumerate(blocks):
            out = width * 2 ** i
            for j in range(n):
                layers.append(BasicBlock(c, out, 2 if (j == 0 and i > 0) else 1))
                c = out
        self.body = nn.Sequential(*layers)
        self.pool = GeM()
        self.neck = nn.Linear(c, dim)
        self.neck_bn = nn.BatchNorm1d(dim)

    def forward(self, x):
        x = self.pool(self.body(self.stem(x)))
        return self.neck_bn(self.neck(x))


class ArcMargin(nn.Module):
    def __init__(self, dim: int, n_classes: int, s: float = 30.0, m: float = 0.35):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_classes, dim))
        nn.init.xavier_uniform_(self.weight)
        self.s = s
        self.cos_m, self.sin_m = math.cos(m), math.sin(m)
        self.th = math.cos(math.pi - m)
        self.mm = math.sin(math.pi - m) * m

    def forward(self, emb, label):
        cosine = F.linear(F.normalize(emb), F.normalize(self.weight))
        sine = torch.sqrt((1.0 - cosine ** 2).clamp(1e-7, 1.0))
        phi = cosine * self.cos_m - sine * self.sin_m
        phi = torch.where(cosine > self.th, phi, cosine - self.mm)
        one_hot = torch.zeros(cosine.size()).to(cosine.device)
        one_hot.scatter_(1, label.view(-1, 1), 1.0)
        logits = one_hot * phi + (1.0 - one_hot) * cosine
        return logits * self.s, cosine
