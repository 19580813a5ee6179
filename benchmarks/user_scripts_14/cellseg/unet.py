import torch
import torch.nn as nn
import torch.nn.functional as F


def double_conv(cin, cout, drop=0.0):
    layers = [nn.Conv2d(cin, cout, 3, padding=1),
              nn.BatchNorm2d(cout),
              nn.ReLU(inplace=True),
              nn.Conv2d(cout, cout, 3, padding=1),
              nn.BatchNorm2d(cout),
              nn.ReLU(inplace=True)]
    if drop > 0:
        layers.append(nn.Dropout2d(drop))
    return nn.Sequential(*layers)


class Up(nn.Module):
    def __init__(self, cin, cout):
        super(Up, self).__init__()
        self.up = nn.ConvTranspose2d(cin, cout, 2, stride=2)
        self.conv = double_conv(cout * 2, cout)

    def forward(self, x, skip):
        x = self.up(x)
        return self.conv(torch.cat([skip, x], dim=1))


class UNet(nn.Module):
    def __init__(self, n_classes=3, base=64, depth=4):
        super(UNet, self).__init__()
        self.inc = double_conv(1, base)
        self.downs = nn.ModuleList()
        self.ups = nn.ModuleList()
        c = base
        for i in range(depth):
            self.downs.append(double_conv(c, c * 2, drop=0.3 if i == depth - 1 else 0.0))
            c *= 2
        for i in range(depth):
            self.ups.append(Up(c, c // 2))
            c //= 2
        self.outc = nn.Conv2d(base, n_classes, 1)

        for m in self.modules():
            if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d)):
                nn.init.kaiming_normal_(m.weight, nonlinearity='relu')
                nn.init.zeros_(m.bias)

    def forward(self, x):
        skips = [self.inc(x)]
        for down in self.downs:
            skips.append(down(F.max_pool2d(skips[-1], 2)))
        x = skips.pop()
        for up in self.ups:
            x = up(x, skips.pop())
        return self.outc(x)
