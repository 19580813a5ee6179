import math

import torch
from torch import nn
import torch.nn.functional as F


class Cache:
    def __init__(self):
        self.k, self.v = None, None

    def add(self, k, v):
        if self.k is not None:
            k, v = torch.cat([self.k, k], 2), torch.cat([self.v, v], 2)
        self.k, self.v = k, v
        return k, v


class RMSNorm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.g = nn.Parameter(torch.ones(d))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.g


class Attention(nn.Module):
    """sliding window + per-head slope (ALiBi); heads can be gated, stats keeps the mean entropy of each head"""

    def __init__(self, d, heads, dropout, window, stats):
        super().__init__()
        self.h, self.window, self.stats = heads, window, stats
        self.qkv = nn.Linear(d, 3 * d, bias=False)
        self.proj = nn.Linear(d, d, bias=False)
        self.drop = nn.Dropout(dropout)
        self.gate = nn.Parameter(torch.ones(heads))
        self.register_buffer('slope', 2.0 ** -torch.arange(1, heads + 1).float(), persistent=False)
        self.entropy = None

    def forward(self, x, doc, cache=None):
        B, T, C = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.h, C // self.h).permute(2, 0, 3, 1, 4)
        if cache is not None:
            k, v = cache.add(k, v)
        S = k.shape[2]
        dist = torch.arange(S - T, S)[:, None] - torch.arange(S)[None]
        dist = dist.to(x.device)
        mask = (dist < 0) | (dist >= self.window)
        if doc is not None:
            mask = mask | (doc[:, :, None] != doc[:, None, :])[:, None]
        att = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        att = att - self.slope[:, None, None] * dist
        att = att.masked_fill(mask, float('-inf')).softmax(-1)
        if self.stats and self.training:
            self.entropy = -(att * (att + 1e-9).log()).sum(-1).mean((0, 2))
        y = self.drop(att) @ v * self.gate[:, None, None]
        return self.proj(y.transpose(1, 2).reshape(B, T, C))


class Block(nn.Module):
    def __init__(self, d, heads, dropout, window, stats):
        super().__init__()
        self.n1, self.n2 = RMSNorm(d), RMSNorm(d)
        self.att = Attention(d, heads, dropout, window, stats)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d), nn.Dropout(dropout))

    def forward(self, x, doc=None, cache=None):
        x = x + self.att(self.n1(x), doc, cache)
        return x + self.mlp(self.n2(x))


class LM(nn.Module):
    def __init__(self, vocab, d, heads, layers, ctx, dropout, window, tie):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.blocks = nn.ModuleList([Block(d, heads, dropout, window, k == layers - 1) for k in range(layers)])
        self.norm = RMSNorm(d)
        self.head = nn.Linear(d, vocab, bias=False)
        self.apply(lambda m: nn.init.normal_(m.weight, std=.05) if isinstance(m, (nn.Linear, nn.Embedding)) else None)
        if tie:
            self.head.weight = self.emb.weight

    def forward(self, x, doc=None, caches=None):
        h = self.emb(x)
        for k, b in enumerate(self.blocks):
            h = b(h, doc, caches[k] if caches else None)
        return self.head(self.norm(h))

    def generate(self, ids, n, stop):
        caches = [Cache() for _ in self.blocks]
        x = ids
        for _ in range(n):
            logits = self(x, caches=caches)[:, -1]
            x = logits.argmax(-1, keepdim=True)
            ids = torch.cat([ids, x], 1)
            if x.item() == stop:
                break
        return ids
