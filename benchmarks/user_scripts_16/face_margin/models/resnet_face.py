# -*- coding: utf-8 -*-
import torch.nn as nn
import torch.nn.init as init


class IRBlock(nn.Module):
    def __init__(self, inplanes, planes, stride=1):
        super(IRBlock, self).__init__()
        self.bn0 = nn.BatchNorm2d(inplanes)
        self.conv1 = nn.Conv2d(inplanes, planes, 3, 1, 1)
        self.bn1 = nn.BatchNorm2d(planes)
        self.prelu = nn.PReLU(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, stride, 1)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = None
        if stride != 1 or inplanes != planes:
            self.downsample = nn.Sequential(
                nn.Conv2d(inplanes, planes, 1, stride, bias=False),
                nn.BatchNorm2d(planes))

    def forward(self, x):
        residual = x
        out = self.bn0(x)
        out = self.conv1(out)
        out = self.bn1(out)
        out = self.prelu(out)
        out = self.conv2(out)
        out = self.bn2(out)
        if self.downsample is not None:
            residual = self.downsample(x)
        out += residual
        return out


class ResNetFace(nn.Module):
    def __init__(self, layers, width=64, input_size=112, feat_dim=512):
        super(ResNetFace, self).__init__()
        self.conv1 = nn.Conv2d(3, width, 3, 1, 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.prelu = nn.PReLU(width)
        blocks, inp = [], width
        for k, n in enumerate(layers):
            planes = width * 2 ** k
            for j in range(n):
                blocks.append(IRBlock(inp, planes, 2 if j == 0 else 1))
                inp = planes
        self.layers = nn.Sequential(*blocks)
        side = input_size
        for _ in layers:
            side = (side + 1) // 2
        self.bn4 = nn.BatchNorm2d(inp)
        self.dropout = nn.Dropout(0.4)
        self.fc5 = nn.Linear(inp * side * side, feat_dim)
        self.bn5 = nn.BatchNorm1d(feat_dim)
        for m in self.modules():
            if isinstance(m, (nn.Conv2d, nn.Linear)):
                init.xavier_normal_(m.weight)

    def forward(self, x):
        x = self.prelu(self.bn1(self.conv1(x)))
        x = self.layers(x)
        x = self.dropout(self.bn4(x))
        x = x.view(x.size(0), -1)
        return self.bn5(self.fc5(x))


def resnet_face34(**kw):
    return ResNetFace([3, 4, 6, 3], **kw)


def resnet_face10(**kw):
    return ResNetFace([1, 1, 1, 1], **kw)
