"""Conv-TasNet (Luo & Mesgarani 2019), one output source."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class GlobalLayerNorm(nn.Module):
    """gLN of the paper: statistics over channels and time, per utterance."""

    def __init__(self, dim, eps=1e-8):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(1, dim, 1))
        self.beta = nn.Parameter(torch.zeros(1, dim, 1))
        self.eps = eps

    def forward(self, y):
        mean = y.mean(dim=1, keepdim=True).mean(dim=2, keepdim=True)
        var = (torch.pow(y - mean, 2)).mean(dim=1, keepdim=True).mean(dim=2, keepdim=True)
        return self.gamma * (y - mean) / torch.pow(var + self.eps, 0.5) + self.beta


class TemporalBlock(nn.Module):
    def __init__(self, dim, hidden, kernel, dilation):
        super().__init__()
        self.inp = nn.Conv1d(dim, hidden, 1)
        self.act1 = nn.PReLU()
        self.norm1 = GlobalLayerNorm(hidden)
        self.depth = nn.Conv1d(hidden, hidden, kernel, padding=dilation * (kernel - 1) // 2,
                               dilation=dilation, groups=hidden)
        self.act2 = nn.PReLU()
        self.norm2 = GlobalLayerNorm(hidden)
        self.res = nn.Conv1d(hidden, dim, 1)
        self.skip = nn.Conv1d(hidden, dim, 1)

    def forward(self, x):
        h = self.norm1(self.act1(self.inp(x)))
        h = self.norm2(self.act2(self.depth(h)))
        return x + self.res(h), self.skip(h)


class ConvTasNet(nn.Module):
    def __init__(self, enc_dim, enc_win, bottleneck, hidden, kernel, blocks, repeats):
        super().__init__()
        self.win = enc_win
        self.stride = enc_win // 2
        self.encoder = nn.Conv1d(1, enc_dim, enc_win, stride=self.stride, bias=False)
        self.norm = GlobalLayerNorm(enc_dim)
        self.squeeze = nn.Conv1d(enc_dim, bottleneck, 1)
        self.tcn = nn.ModuleList(
            TemporalBlock(bottleneck, hidden, kernel, 2 ** b) for _ in range(repeats) for b in range(blocks))
        self.head = nn.Sequential(nn.PReLU(), nn.Conv1d(bottleneck, enc_dim, 1), nn.Sigmoid())
        self.decoder = nn.ConvTranspose1d(enc_dim, 1, enc_win, stride=self.stride, bias=False)

    def pad(self, x):
        rest = self.win - (self.stride + x.shape[-1] % self.win) % self.win
        if rest > 0:
            x = torch.cat([x, torch.zeros(x.shape[0], rest).to(x.device)], dim=-1)
        side = torch.zeros(x.shape[0], self.stride).to(x.device)
        return torch.cat([side, x, side], dim=-1), rest

    def forward(self, wav):
        x, rest = self.pad(wav)
        w = F.relu(self.encoder(x.unsqueeze(1)))
        h = self.squeeze(self.norm(w))
        skips = []
        for block in self.tcn:
            h, s = block(h)
            skips.append(s)
        mask = self.head(torch.stack(skips).sum(0))
        y = self.decoder(w * mask).squeeze(1)
        return y[:, self.stride:-(rest + self.stride)].contiguous()
