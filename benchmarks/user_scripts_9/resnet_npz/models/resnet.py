"""ResNet for small images (32x32), after He et al. 2015."""
import torch
import torch.nn as nn
import torch.nn.functional as F


def conv3x3(cin, cout, stride=1):
    return nn.Conv2d(cin, cout, kernel_size=3, stride=stride, padding=1, bias=False)


class SELayer(nn.Module):
    def __init__(self, channel, reduction=8):
        super(SELayer, self).__init__()
        self.avg_pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Sequential(
            nn.Linear(channel, channel // reduction),
            nn.ReLU(inplace=True),
            nn.Linear(channel // reduction, channel),
            nn.Sigmoid(),
        )

    def forward(self, x):
        b, c, _, _ = x.size()
        y = self.avg_pool(x).view(b, c)
        y = self.fc(y).view(b, c, 1, 1)
        return x * y.expand_as(x)


class BasicBlock(nn.Module):
    def __init__(self, cin, cout, stride=1, se=True):
        super(BasicBlock, self).__init__()
        self.conv1 = conv3x3(cin, cout, stride)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = conv3x3(cout, cout)
        self.bn2 = nn.BatchNorm2d(cout)
        self.se = SELayer(cout) if se else None
        self.shortcut = nn.Sequential()
        if stride != 1 or cin != cout:
            self.shortcut = nn.Sequential(
                nn.Conv2d(cin, cout, kernel_size=1, stride=stride),
                nn.BatchNorm2d(cout),
            )

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.se is not None:
            out = self.se(out)
        out = out + self.shortcut(x)
        return F.relu(out)


class ResNet(nn.Module):
    def __init__(self, layers, width=64, num_classes=10):
        super(ResNet, self).__init__()
        self.conv1 = nn.Conv2d(3, width, 3, 1, 1)
        self.bn1 = nn.BatchNorm2d(width)
        stages = []
        cin = width
        for i, n in enumerate(layers):
            cout = width * 2 ** i
            for j in range(n):
                stride = 2 if (j == 0 and i > 0) else 1
                stages.append(BasicBlock(cin, cout, stride))
                cin = cout
        self.stages = nn.Sequential(*stages)
        self.drop = nn.Dropout(0.1)
        self.fc = nn.Linear(cin, num_classes)

        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode='fan_out', nonlinearity='relu')

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.stages(x)
        x = F.adaptive_avg_pool2d(x, 1)
        x = x.view(x.size(0), -1)
        return self.fc(self.drop(x))


def build_model(args):
    layers = [int(v) for v in args.layers.split(',')]
    return ResNet(layers, width=args.width, num_classes=args.num_classes)
