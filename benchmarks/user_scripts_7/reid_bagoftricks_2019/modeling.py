# encoding: utf-8
import torch
from torch import nn


def weights_init_kaiming(m):
    name = m.__class__.__name__
    if name.find('Conv') != -1:
        nn.init.kaiming_normal_(m.weight, a=0, mode='fan_in')
    elif name.find('BatchNorm') != -1 and m.affine:
        nn.init.constant_(m.weight, 1.0)
        nn.init.constant_(m.bias, 0.0)


class Bottleneck(nn.Module):
    def __init__(self, cin, mid, stride=1):
        super(Bottleneck, self).__init__()
        cout = mid * 4
        self.conv1 = nn.Conv2d(cin, mid, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(mid)
        self.conv2 = nn.Conv2d(mid, mid, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(mid)
        self.conv3 = nn.Conv2d(mid, cout, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(cout)
        self.relu = nn.ReLU(inplace=True)
        self.down = None
        if stride != 1 or cin != cout:
            self.down = nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        out = out + (x if self.down is None else self.down(x))
        return self.relu(out)


class Baseline(nn.Module):
    def __init__(self, num_classes, width, depth):
        super(Baseline, self).__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width),
                                  nn.ReLU(inplace=True), nn.MaxPool2d(2))
        layers, cin = [], width
        for stage, n in enumerate(depth):
            mid = width * 2 ** stage
            for b in range(n):
                # last stride = 1, as in PCB
                layers.append(Bottleneck(cin, mid, 2 if b == 0 and stage in (1, 2) else 1))
                cin = mid * 4
        self.layers = nn.Sequential(*layers)
        self.gap = nn.AdaptiveAvgPool2d(1)
        self.feat_dim = cin
        self.bottleneck = nn.BatchNorm1d(cin)
        self.bottleneck.bias.requires_grad_(False)
        self.classifier = nn.Linear(cin, num_classes, bias=False)
        self.apply(weights_init_kaiming)
        nn.init.normal_(self.classifier.weight, std=0.001)

    def forward(self, x):
        f = self.gap(self.layers(self.stem(x)))
        f = f.view(f.shape[0], -1)
        feat = self.bottleneck(f)
        if self.training:
            return self.classifier(feat), f
        return feat
