import torch.nn as nn

from .registry import NETS


class ConvUnit(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, kernel_size=3, stride=stride, padding=1)
        self.bn = nn.BatchNorm2d(cout)
        self.act = nn.ReLU()

    def forward(self, x):
        return self.act(self.bn(self.conv(x)))


@NETS.register
class PlainNet(nn.Module):
    def __init__(self, widths, num_classes=10, in_channels=3):
        super().__init__()
        chans = [in_channels] + list(widths)
        self.stages = nn.ModuleList(
            [ConvUnit(a, b, stride=1 if i == 0 else 2) for i, (a, b) in enumerate(zip(chans[:-1], chans[1:]))]
        )
        self.fc = nn.Linear(chans[-1], num_classes)

    def forward(self, x):
        feats = []
        for s in self.stages:
            x = s(x)
            feats.append(x)
        return self.fc(x.mean(dim=(2, 3))), feats
