import torch
import torch.nn as nn


class ResBlock(nn.Module):
    def __init__(self, ch, dilation, dropout):
        super().__init__()
        self.conv1 = nn.Conv2d(ch, ch, 3, padding=dilation, dilation=dilation, bias=False)
        self.bn1 = nn.BatchNorm2d(ch)
        self.conv2 = nn.Conv2d(ch, ch, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(ch)
        self.drop = nn.Dropout2d(dropout)

    def forward(self, x):
        y = torch.relu(self.bn1(self.conv1(x)))
        y = self.drop(self.bn2(self.conv2(y)))
        return torch.relu(x + y)


class KWSResNet(nn.Module):
    """res15-like (Tang & Lin 2018), pooled over time with a learned weight per frame"""

    def __init__(self, n_classes, n_mels, channels=64, n_blocks=6, dropout=0.1):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, channels, 3, padding=1, bias=False),
                                  nn.BatchNorm2d(channels), nn.ReLU(), nn.AvgPool2d((2, 1)))
        self.blocks = nn.Sequential(*[ResBlock(channels, 2 ** (i // 3), dropout) for i in range(n_blocks)])
        self.pool = nn.AvgPool2d((n_mels // 8, 1))            # four bands stay apart
        self.score = nn.Linear(channels * 4, 1)
        self.fc = nn.Linear(channels * 4, n_classes)
        self.register_buffer('band_weight', torch.tensor([1.2, 1.1, 1.0, 0.9]).view(1, 1, 4, 1))

    def forward(self, x):
        h = self.blocks(self.stem(x))
        h = (self.pool(h) * self.band_weight).flatten(1, 2).transpose(1, 2)     # (B, T, 4C)
        w = torch.softmax(self.score(h), dim=1)
        return self.fc((w * h).sum(1))
