import torch
import torch.nn as nn
import torch.nn.functional as F


class GlobalPoolBias(nn.Module):
    """KataGo: the mean and maximum over the board shift each channel."""

    def __init__(self, ch):
        super().__init__()
        self.lin = nn.Linear(2 * ch, ch)

    def forward(self, x):
        g = torch.cat([x.mean((2, 3)), x.amax((2, 3))], dim=1)
        return x + self.lin(g)[:, :, None, None]


class Block(nn.Module):
    def __init__(self, ch, pooled):
        super().__init__()
        self.conv1 = nn.Conv2d(ch, ch, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(ch)
        self.conv2 = nn.Conv2d(ch, ch, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(ch)
        self.pool = GlobalPoolBias(ch) if pooled else nn.Identity()

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(self.pool(y)))
        return F.relu(x + y)


class PolicyValueNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        ch = cfg.channels
        self.stem = nn.Sequential(nn.Conv2d(cfg.planes, ch, 3, padding=1, bias=False),
                                  nn.BatchNorm2d(ch), nn.ReLU())
        self.blocks = nn.ModuleList([Block(ch, k % 3 == 2) for k in range(cfg.blocks)])
        self.policy = nn.Conv2d(ch, 1, 1)
        self.pass_move = nn.Linear(ch, 1)
        self.value = nn.Sequential(nn.Linear(ch, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, x):
        x = self.stem(x)
        for b in self.blocks:
            x = b(x)
        pooled = x.mean((2, 3))
        logits = torch.cat([self.policy(x).flatten(1), self.pass_move(pooled)], dim=1)
        return logits, self.value(pooled).squeeze(1)
