import torch
import torch.nn as nn
import torch.nn.functional as F


class ConvBlock(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.conv1 = nn.Conv3d(cin, cout, 3, stride=stride, padding=1, bias=True)
        self.norm1 = nn.InstanceNorm3d(cout, affine=True)
        self.conv2 = nn.Conv3d(cout, cout, 3, padding=1, bias=True)
        self.norm2 = nn.InstanceNorm3d(cout, affine=True)
        self.act = nn.LeakyReLU(1e-2, inplace=True)

    def forward(self, x):
        x = self.act(self.norm1(self.conv1(x)))
        return self.act(self.norm2(self.conv2(x)))


class AttentionGate(nn.Module):
    def __init__(self, ch):
        super().__init__()
        self.theta, self.phi, self.psi = nn.Conv3d(ch, ch // 2, 1), nn.Conv3d(ch, ch // 2, 1), nn.Conv3d(ch // 2, 1, 1)

    def forward(self, skip, g):
        return skip * torch.sigmoid(self.psi(F.relu(self.theta(skip) + self.phi(g))))


class UNet3D(nn.Module):
    def __init__(self, cin, ncls, base=16, depth=3, deep_supervision=True):
        super().__init__()
        chans = [base * 2 ** i for i in range(depth)]
        self.down = nn.ModuleList([ConvBlock(cin if i == 0 else chans[i - 1], chans[i], 1 if i == 0 else 2) for i in range(depth)])
        self.up = nn.ModuleList([nn.ConvTranspose3d(chans[i], chans[i - 1], 2, stride=2) for i in range(depth - 1, 0, -1)])
        self.gate = nn.ModuleList([AttentionGate(chans[i - 1]) for i in range(depth - 1, 0, -1)])
        self.dec = nn.ModuleList([ConvBlock(2 * chans[i - 1], chans[i - 1]) for i in range(depth - 1, 0, -1)])
        self.heads = nn.ModuleList([nn.Conv3d(chans[i - 1], ncls, 1, bias=False) for i in range(depth - 1, 0, -1)])
        self.deep_supervision = deep_supervision

    def forward(self, x):
        skips = []
        for block in self.down:
            x = block(x)
            skips.append(x)
        outs = []
        for i, (up, gate, dec, head) in enumerate(zip(self.up, self.gate, self.dec, self.heads)):
            x = up(x)
            skip = gate(skips[-(i + 2)], x)
            x = dec(torch.cat([x, skip], dim=1))
            outs.append(head(x))
        outs = outs[::-1]
        if self.deep_supervision and self.training:
            return outs
        return outs[0]
