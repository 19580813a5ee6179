import torch
import torch.nn as nn
import torch.nn.functional as F


class ConvBlock(nn.Module):
    def __init__(self, cin, cout, dropout=0.0):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(cout)
        self.drop = nn.Dropout2d(dropout)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.drop(x)
        return F.relu(self.bn2(self.conv2(x)))


class AttentionGate(nn.Module):
    """Additive attention gate of Attention U-Net (Oktay et al., 2018)."""

    def __init__(self, c_skip, c_gate, c_mid):
        super().__init__()
        self.w_skip = nn.Conv2d(c_skip, c_mid, 1)
        self.w_gate = nn.Conv2d(c_gate, c_mid, 1)
        self.psi = nn.Conv2d(c_mid, 1, 1)

    def forward(self, skip, gate):
        a = torch.sigmoid(self.psi(F.relu(self.w_skip(skip) + self.w_gate(gate))))
        return skip * a


class AttUNet(nn.Module):
    def __init__(self, n_classes=3, base=64, depth=4, dropout=0.1):
        super().__init__()
        self.down = nn.ModuleList()
        c = 3
        widths = [base * 2 ** i for i in range(depth)]
        for w in widths:
            self.down.append(ConvBlock(c, w))
            c = w
        self.mid = ConvBlock(c, c * 2, dropout)
        c = c * 2
        self.up, self.gates, self.dec = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for w in reversed(widths):
            self.up.append(nn.ConvTranspose2d(c, w, 2, stride=2))
            self.gates.append(AttentionGate(w, w, max(w // 2, 1)))
            self.dec.append(ConvBlock(2 * w, w))
            c = w
        self.head = nn.Conv2d(c, n_classes, 1)

    def forward(self, x):
        skips = []
        for block in self.down:
            x = block(x)
            skips.append(x)
            x = F.max_pool2d(x, 2)
        x = self.mid(x)
        for up, gate, dec, skip in zip(self.up, self.gates, self.dec, reversed(skips)):
            x = up(x)
            x = dec(torch.cat([gate(skip, x), x], dim=1))
        return self.head(x)
