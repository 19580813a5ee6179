import torch.nn as nn
import torch.nn.functional as F


class DSBlock(nn.Module):
    def __init__(self, ch, stride=1):
        super().__init__()
        self.dw = nn.Conv2d(ch, ch, 3, stride=stride, padding=1, groups=ch, bias=False)
        self.bn1 = nn.BatchNorm2d(ch)
        self.pw = nn.Conv2d(ch, ch, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(ch)

    def forward(self, x):
        x = F.relu(self.bn1(self.dw(x)))
        return F.relu(self.bn2(self.pw(x)))


class DSCNN(nn.Module):
    """Zhang et al. 2017, 'Hello Edge', small variant."""

    def __init__(self, n_classes, ch=32):
        super().__init__()
        self.conv = nn.Conv2d(1, ch, (7, 4), stride=(2, 2), padding=(3, 1), bias=False)
        self.bn = nn.BatchNorm2d(ch)
        self.blocks = nn.Sequential(DSBlock(ch), DSBlock(ch), DSBlock(ch))
        self.drop = nn.Dropout(0.2)
        self.fc = nn.Linear(ch, n_classes)

    def forward(self, x):
        x = F.relu(self.bn(self.conv(x)))
        x = self.blocks(x)
        x = F.adaptive_avg_pool2d(x, 1)
        x = x.view(x.size(0), -1)
        return self.fc(self.drop(x))
