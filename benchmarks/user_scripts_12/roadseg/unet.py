import torch
import torch.nn as nn
import torch.nn.functional as F


def block(i, o):
    return nn.Sequential(
        nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True),
        nn.Conv2d(o, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class UNet(nn.Module):

    def __init__(self, n_classes, width=48, depth=4):
        super(UNet, self).__init__()
        ch = [width * 2 ** k for k in range(depth + 1)]
        self.down = nn.ModuleList([block(3 if k == 0 else ch[k - 1], ch[k]) for k in range(depth + 1)])
        self.up = nn.ModuleList([nn.ConvTranspose2d(ch[k + 1], ch[k], 2, stride=2) for k in reversed(range(depth))])
        self.dec = nn.ModuleList([block(2 * ch[k], ch[k]) for k in reversed(range(depth))])
        self.drop = nn.Dropout2d(0.2)
        self.head = nn.Conv2d(width, n_classes, 1)

    def forward(self, x):
        skips = []
        for k, layer in enumerate(self.down):
            x = layer(x if k == 0 else F.max_pool2d(x, 2))
            skips.append(x)
        x = self.drop(skips.pop())
        for up, dec in zip(self.up, self.dec):
            x = dec(torch.cat([up(x), skips.pop()], 1))
        return self.head(x)
