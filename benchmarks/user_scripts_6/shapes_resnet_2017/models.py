import math
import torch.nn as nn
import torch.nn.functional as F


class BasicBlock(nn.Module):
    def __init__(self, inplanes, planes, stride=1):
        super(BasicBlock, self).__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, 3, stride, 1)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1)
        self.bn2 = nn.BatchNorm2d(planes)
        self.shortcut = None
        if stride != 1 or inplanes != planes:
            # no bn on purpose, see the ablation
            self.shortcut = nn.Conv2d(inplanes, planes, 1, stride)

    def forward(self, x):
        res = x if self.shortcut is None else self.shortcut(x)
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return F.relu(out + res)


class ResNet(nn.Module):
    def __init__(self, widths, blocks, num_classes):
        super(ResNet, self).__init__()
        self.stem = nn.Conv2d(3, widths[0], 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(widths[0])
        stages = []
        cin = widths[0]
        for k, w in enumerate(widths):
            for b in range(blocks):
                stages.append(BasicBlock(cin, w, 2 if (b == 0 and k > 0) else 1))
                cin = w
        self.stages = nn.Sequential(*stages)
        self.drop = nn.Dropout(0.1)
        self.fc = nn.Linear(cin, num_classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                n = m.kernel_size[0] * m.kernel_size[1] * m.out_channels
                m.weight.data.normal_(0, math.sqrt(2. / n))
            elif isinstance(m, nn.BatchNorm2d):
                m.weight.data.fill_(1)
                m.bias.data.zero_()

    def forward(self, x):
        x = F.relu(self.bn(self.stem(x)))
        x = self.stages(x)
        x = x.mean(3).mean(2)
        return self.fc(self.drop(x))


def resnet14(num_classes=4):
    return ResNet([16, 32, 64], 2, num_classes)
