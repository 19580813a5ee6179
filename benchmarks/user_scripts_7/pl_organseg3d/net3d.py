import torch
from torch import nn


def block(i, o, stride=1):
    return nn.Sequential(nn.Conv3d(i, o, 3, stride, 1, bias=False), nn.InstanceNorm3d(o, affine=True), nn.LeakyReLU(0.01, inplace=True),
                         nn.Conv3d(o, o, 3, 1, 1, bias=False), nn.InstanceNorm3d(o, affine=True), nn.LeakyReLU(0.01, inplace=True))


class UNet3D(nn.Module):
    def __init__(self, classes, width, levels):
        super().__init__()
        ch = [min(width * 2 ** k, 320) for k in range(levels)]
        self.down = nn.ModuleList([block(1 if k == 0 else ch[k - 1], ch[k], 1 if k == 0 else 2) for k in range(levels)])
        self.up = nn.ModuleList([nn.ConvTranspose3d(ch[k + 1], ch[k], 2, 2) for k in range(levels - 1)])
        self.dec = nn.ModuleList([block(2 * ch[k], ch[k]) for k in range(levels - 1)])
        self.heads = nn.ModuleList([nn.Conv3d(ch[k], classes, 1) for k in range(levels - 1)])

    def forward(self, x):
        skips = []
        for d in self.down:
            x = d(x)
            skips.append(x)
        outs = []
        for k in reversed(range(len(self.up))):
            x = self.dec[k](torch.cat([self.up[k](x), skips[k]], 1))
            outs.append(self.heads[k](x))
        return outs[::-1] if self.training else outs[-1]
