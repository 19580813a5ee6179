import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def timestep_embedding(t, dim):
    half = dim // 2
    freqs = torch.exp(-math.log(10000) * torch.arange(half, dtype=torch.float32) / half).to(t.device)
    args = t.float()[:, None] * freqs[None]
    return torch.cat([args.cos(), args.sin()], dim=-1)


class ResBlock(nn.Module):
    def __init__(self, cin, cout, emb, dropout):
        super().__init__()
        self.norm1 = nn.GroupNorm(8, cin)
        self.conv1 = nn.Conv2d(cin, cout, 3, padding=1)
        self.emb = nn.Linear(emb, cout)
        self.norm2 = nn.GroupNorm(8, cout)
        self.drop = nn.Dropout(dropout)
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1)
        self.skip = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, e):
        h = self.conv1(F.silu(self.norm1(x)))
        h = h + self.emb(F.silu(e))[:, :, None, None]
        h = self.conv2(self.drop(F.silu(self.norm2(h))))
        return h + self.skip(x)


class Attention(nn.Module):
    def __init__(self, ch, heads):
        super().__init__()
        self.heads = heads
        self.norm = nn.GroupNorm(8, ch)
        self.qkv = nn.Conv2d(ch, 3 * ch, 1)
        self.proj = nn.Conv2d(ch, ch, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, 3, self.heads, c // self.heads, h * w).unbind(1)
        att = torch.einsum("bhdi,bhdj->bhij", q, k) / math.sqrt(c // self.heads)
        att = att.softmax(dim=-1)
        out = torch.einsum("bhij,bhdj->bhdi", att, v)
        return x + self.proj(out.reshape(b, c, h, w))


class UNet(nn.Module):
    def __init__(self, width, emb_dim, heads, dropout, n_classes=4):
        super().__init__()
        self.emb_dim = emb_dim
        self.null = n_classes
        self.label = nn.Embedding(n_classes + 1, emb_dim)
        self.time = nn.Sequential(nn.Linear(emb_dim, emb_dim), nn.SiLU(), nn.Linear(emb_dim, emb_dim))
        self.inp = nn.Conv2d(1, width, 3, padding=1)
        self.d1 = ResBlock(width, width, emb_dim, dropout)
        self.d2 = ResBlock(width, 2 * width, emb_dim, dropout)
        self.att = Attention(2 * width, heads)
        self.mid = ResBlock(2 * width, 2 * width, emb_dim, dropout)
        self.u1 = ResBlock(3 * width, width, emb_dim, dropout)
        self.out = nn.Sequential(nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, 1, 3, padding=1))

    def forward(self, x, t, y):
        e = self.time(timestep_embedding(t, self.emb_dim)) + self.label(y)
        h1 = self.d1(self.inp(x), e)
        h2 = self.att(self.d2(F.avg_pool2d(h1, 2), e))
        m = self.mid(h2, e)
        m = F.interpolate(m, scale_factor=2, mode="nearest")
        return self.out(self.u1(torch.cat([m, h1], dim=1), e))
