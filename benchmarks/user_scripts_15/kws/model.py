import torch.nn as nn
import torch.nn.functional as F


class DSBlock(nn.Module):
    def __init__(self, ch):
        super(DSBlock, self).__init__()
        self.dw = nn.Conv2d(ch, ch, 3, padding=1, groups=ch)
        self.bn1 = nn.BatchNorm2d(ch)
        self.pw = nn.Conv2d(ch, ch, 1)
        self.bn2 = nn.BatchNorm2d(ch)

    def forward(self, x):
        x = F.relu(self.bn1(self.dw(x)))
        return F.relu(self.bn2(self.pw(x)))


class DSCNN(nn.Module):
    """DS-CNN (L) of 'Hello Edge: keyword spotting on microcontrollers'"""

    def __init__(self, n_classes, ch=276, n_blocks=5):
        super(DSCNN, self).__init__()
        self.norm = nn.BatchNorm2d(1, affine=False)    # feature scaling, learnt on the fly
        self.conv = nn.Conv2d(1, ch, (10, 4), stride=(2, 2), padding=(5, 1))
        self.bn = nn.BatchNorm2d(ch)
        self.blocks = nn.Sequential(*[DSBlock(ch) for _ in range(n_blocks)])
        self.drop = nn.Dropout(0.2)
        self.fc = nn.Linear(ch, n_classes)

    def forward(self, x):
        x = F.relu(self.bn(self.conv(self.norm(x))))
        x = self.blocks(x)
        x = x.mean(3).mean(2)
        return self.fc(self.drop(x))
