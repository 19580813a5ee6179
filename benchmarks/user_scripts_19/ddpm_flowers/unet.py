import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def timestep_embedding(t, dim):
    half = dim // 2
    freqs = torch.exp(-math.log(10000) * torch.arange(half) / half)
    args = t[:, None].float() * freqs[None].to(t.device)
    return torch.cat([torch.cos(args), torch.sin(args)], dim=-1)


class ResBlock(nn.Module):
    def __init__(self, cin, cout, temb, dropout):
        super().__init__()
        self.norm1 = nn.GroupNorm(32, cin)
        self.conv1 = nn.Conv2d(cin, cout, 3, padding=1)
        self.temb = nn.Linear(temb, cout)
        self.norm2 = nn.GroupNorm(32, cout)
        self.drop = nn.Dropout(dropout)
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1)
        self.skip = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, emb):
        h = self.conv1(F.silu(self.norm1(x)))
        h = h + self.temb(F.silu(emb))[:, :, None, None]
        h = self.conv2(self.drop(F.silu(self.norm2(h))))
        return h + self.skip(x)


class SelfAttention(nn.Module):
    def __init__(self, ch, heads=4):
        super().__init__()
        self.heads = heads
        self.norm = nn.GroupNorm(32, ch)
        self.qkv = nn.Conv1d(ch, 3 * ch, 1)
        self.out = nn.Conv1d(ch, ch, 1)

    def forward(self, x):
        B, C, H, W = x.shape
        q, k, v = self.qkv(self.norm(x).view(B, C, H * W)).chunk(3, dim=1)
        d = C // self.heads
        q = q.reshape(B * self.heads, d, H * W)
        k = k.reshape(B * self.heads, d, H * W)
        v = v.reshape(B * self.heads, d, H * W)
        w = torch.einsum("bdq,bdk->bqk", q, k) * d ** -0.5
        w = w.softmax(dim=-1)
        h = torch.einsum("bqk,bdk->bdq", w, v).reshape(B, C, H * W)
        return x + self.out(h).view(B, C, H, W)


class UNet(nn.Module):
    def __init__(self, ch=128, mult=(1, 2, 2, 4), attn_at=(2, 3), dropout=0.1, image_size=64):
        super().__init__()
        self.ch = ch
        temb = 4 * ch
        self.time = nn.Sequential(nn.Linear(ch, temb), nn.SiLU(), nn.Linear(temb, temb))
        self.conv_in = nn.Conv2d(3, ch, 3, padding=1)
        self.down = nn.ModuleList()
        chans, c = [ch], ch
        for i, m in enumerate(mult):
            for _ in range(2):
                attn = SelfAttention(ch * m) if i in attn_at else nn.Identity()
                self.down.append(nn.ModuleList([ResBlock(c, ch * m, temb, dropout), attn]))
                c = ch * m
                chans.append(c)
            if i < len(mult) - 1:
                self.down.append(nn.ModuleList([nn.Conv2d(c, c, 3, stride=2, padding=1)]))
                chans.append(c)
        self.mid1 = ResBlock(c, c, temb, dropout)
        self.mid_attn = SelfAttention(c)
        self.mid2 = ResBlock(c, c, temb, dropout)
        self.up = nn.ModuleList()
        for i, m in reversed(list(enumerate(mult))):
            for j in range(3):
                attn = SelfAttention(ch * m) if i in attn_at else nn.Identity()
                self.up.append(nn.ModuleList([ResBlock(c + chans.pop(), ch * m, temb, dropout), attn]))
                c = ch * m
            if i > 0:
                self.up.append(nn.ModuleList([nn.Conv2d(c, c, 3, padding=1)]))
        self.norm_out = nn.GroupNorm(32, c)
        self.conv_out = nn.Conv2d(c, 3, 3, padding=1)
        nn.init.zeros_(self.conv_out.weight)
        nn.init.zeros_(self.conv_out.bias)

    def forward(self, x, t):
        emb = self.time(timestep_embedding(t, self.ch))
        h = self.conv_in(x)
        hs = [h]
        for stage in self.down:
            if len(stage) == 1:
                h = stage[0](h)
            else:
                h = stage[1](stage[0](h, emb))
            hs.append(h)
        h = self.mid2(self.mid_attn(self.mid1(h, emb)), emb)
        for stage in self.up:
            if len(stage) == 1:
                h = stage[0](F.interpolate(h, scale_factor=2, mode="nearest"))
            else:
                h = stage[1](stage[0](torch.cat([h, hs.pop()], dim=1), emb))
        return self.conv_out(F.silu(self.norm_out(h)))
