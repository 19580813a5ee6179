"""Decoder-only transformer: RMSNorm, rotary positions, grouped-query attention, SwiGLU."""
from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    vocab: int = 8192
    context: int = 512
    dim: int = 512
    layers: int = 8
    heads: int = 8
    kv_heads: int = 2
    ff: int = 1408
    rope_base: float = 10000.0


class RMSNorm(nn.Module):
    def __init__(self, dim: int, eps: float = 1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x.float()
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + self.eps)
        return h.type_as(x) * self.weight


def rotary(q: torch.Tensor, k: torch.Tensor, base: float) -> tuple[torch.Tensor, torch.Tensor]:
    t, d = q.shape[-2], q.shape[-1]
    inv = 1.0 / base ** (torch.arange(0, d, 2).float() / d)
    ang = torch.outer(torch.arange(t).float(), inv).to(q.device)
    cos = torch.cat([ang, ang], -1).cos()
    sin = torch.cat([ang, ang], -1).sin()

    def turn(x):
        a, b = x.chunk(2, -1)
        return (x * cos + torch.cat([-b, a], -1) * sin).type_as(x)

    return turn(q), turn(k)


class Attention(nn.Module):
    def __init__(self, cfg: Config):
        super().__init__()
        self.cfg = cfg
        self.hd = cfg.dim // cfg.heads
        self.wq = nn.Linear(cfg.dim, cfg.heads * self.hd, bias=False)
        self.wk = nn.Linear(cfg.dim, cfg.kv_heads * self.hd, bias=False)
        self.wv = nn.Linear(cfg.dim, cfg.kv_heads * self.hd, bias=False)
        self.wo = nn.Linear(cfg.heads * self.hd, cfg.dim, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, _ = x.shape
        q = self.wq(x).view(b, t, self.cfg.heads, self.hd).transpose(1, 2)
        k = self.wk(x).view(b, t, self.cfg.kv_heads, self.hd).transpose(1, 2)
        v = self.wv(x).view(b, t, self.cfg.kv_heads, self.hd).transpose(1, 2)
        q, k = rotary(q, k, self.cfg.rope_base)
        rep = self.cfg.heads // self.cfg.kv_heads
        k = k.repeat_interleave(rep, dim=1)
        v = v.repeat_interleave(rep, dim=1)
        att = (q @ k.transpose(-2, -1)) * self.hd**-0.5
        mask = torch.triu(torch.ones(t, t, dtype=torch.bool, device=x.device), diagonal=1)
        att = att.masked_fill(mask, float("-inf"))
        att = F.softmax(att, dim=-1, dtype=torch.float32).type_as(q)
        y = (att @ v).transpose(1, 2).contiguous().view(b, t, -1)
        return self.wo(y)


class Block(nn.Module):
    def __init__(self, cfg: Config):
        super().__init__()
        self.norm1 = RMSNorm(cfg.dim)
        self.attn = Attention(cfg)
        self.norm2 = RMSNorm(cfg.dim)
        self.up = nn.Linear(cfg.dim, 2 * cfg.ff, bias=False)
        self.down = nn.Linear(cfg.ff, cfg.dim, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.norm1(x))
        a, g = self.up(self.norm2(x)).chunk(2, -1)
        return x + self.down(a * F.silu(g))


class Decoder(nn.Module):
    def __init__(self, cfg: Config):
        super().__init__()
        self.cfg = cfg
        self.embed = nn.Embedding(cfg.vocab, cfg.dim)
        self.blocks = nn.ModuleList(Block(cfg) for _ in range(cfg.layers))
        self.norm = RMSNorm(cfg.dim)
        self.head = nn.Linear(cfg.dim, cfg.vocab, bias=False)
        self.head.weight = self.embed.weight
        for name, p in self.named_parameters():
            if p.dim() == 2:
                std = 0.02 / (2 * cfg.layers) ** 0.5 if name.endswith(("wo.weight", "down.weight")) else 0.02
                nn.init.normal_(p, std=std)

    def forward(self, idx: torch.Tensor, targets: torch.Tensor | None = None):
        x = self.embed(idx)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        if targets is None:
            return logits[:, -1].float(), None
        return logits, F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())

    @torch.inference_mode()
    def generate(self, idx: torch.Tensor, n: int, top_k: int = 50, temperature: float = 0.8, stop: int | None = None):
        for _ in range(n):
            logits, _ = self(idx[:, -self.cfg.context :])
            logits = logits / temperature
            kth = torch.topk(logits, min(top_k, logits.shape[-1]), dim=-1).values[:, -1:]
            logits = logits.masked_fill(logits < kth, float("-inf"))
            nxt = torch.multinomial(F.softmax(logits, dim=-1), 1)
            if stop is not None and nxt.item() == stop:
                break
            idx = torch.cat([idx, nxt], dim=1)
        return idx
