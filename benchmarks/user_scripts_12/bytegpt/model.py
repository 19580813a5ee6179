"""Decoder-only transformer: RoPE, RMSNorm, SwiGLU, KV cache for sampling."""
import math
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class GPTConfig:
    vocab_size: int = 256
    block_size: int = 512
    n_layer: int = 8
    n_head: int = 8
    n_embd: int = 512
    dropout: float = 0.1
    rope_base: float = 10000.0
    z_loss: float = 1e-4


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return (y * self.weight).type_as(x)


def rope(x, start, base):
    """x: (B, H, T, hd); start: absolute position of the first token"""
    T, hd = x.shape[-2:]
    freq = base ** (-torch.arange(0, hd, 2, device=x.device).float() / hd)
    angle = torch.outer(torch.arange(start, start + T, device=x.device).float(), freq)
    cos, sin = angle.cos(), angle.sin()
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1).type_as(x)


class Attention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.n_head = cfg.n_head
        self.base = cfg.rope_base
        self.qkv = nn.Linear(cfg.n_embd, 3 * cfg.n_embd, bias=False)
        self.proj = nn.Linear(cfg.n_embd, cfg.n_embd, bias=False)
        self.attn_drop = nn.Dropout(cfg.dropout)
        self.resid_drop = nn.Dropout(cfg.dropout)

    def forward(self, x, cache=None):
        B, T, C = x.shape
        q, k, v = self.qkv(x).split(C, dim=2)
        q, k, v = (t.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) for t in (q, k, v))
        start = cache["k"].shape[2] if cache else 0
        q, k = rope(q, start, self.base), rope(k, start, self.base)
        if cache is not None:
            if cache:
                k = torch.cat([cache["k"], k], dim=2)
                v = torch.cat([cache["v"], v], dim=2)
            cache["k"], cache["v"] = k, v
        att = (q @ k.transpose(-2, -1)) / math.sqrt(k.shape[-1])
        S = k.shape[2]
        mask = torch.tril(torch.ones(S, S))[S - T:].to(x.device)
        att = att.masked_fill(mask == 0, float("-inf"))
        att = self.attn_drop(F.softmax(att, dim=-1))
        y = (att @ v).transpose(1, 2).contiguous().view(B, T, C)
        return self.resid_drop(self.proj(y))


class MLP(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        hidden = int(8 * cfg.n_embd / 3) // 64 * 64 or 64
        self.gate = nn.Linear(cfg.n_embd, hidden, bias=False)
        self.up = nn.Linear(cfg.n_embd, hidden, bias=False)
        self.down = nn.Linear(hidden, cfg.n_embd, bias=False)
        self.drop = nn.Dropout(cfg.dropout)

    def forward(self, x):
        return self.drop(self.down(F.silu(self.gate(x)) * self.up(x)))


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.norm1, self.norm2 = RMSNorm(cfg.n_embd), RMSNorm(cfg.n_embd)
        self.attn, self.mlp = Attention(cfg), MLP(cfg)

    def forward(self, x, cache=None):
        x = x + self.attn(self.norm1(x), cache)
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, cfg: GPTConfig):
        super().__init__()
        self.cfg = cfg
        self.embed = nn.Embedding(cfg.vocab_size, cfg.n_embd)
        self.drop = nn.Dropout(cfg.dropout)
        self.blocks = nn.ModuleList(Block(cfg) for _ in range(cfg.n_layer))
        self.norm = RMSNorm(cfg.n_embd)
        self.head = nn.Linear(cfg.n_embd, cfg.vocab_size, bias=False)
        self.head.weight = self.embed.weight
        self.apply(self._init)
        for name, p in self.named_parameters():
            if name.endswith(("proj.weight", "down.weight")):
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * cfg.n_layer))

    @staticmethod
    def _init(m):
        if isinstance(m, (nn.Linear, nn.Embedding)):
            nn.init.normal_(m.weight, std=0.02)

    def forward(self, idx, targets=None, caches=None):
        x = self.drop(self.embed(idx))
        for i, block in enumerate(self.blocks):
            x = block(x, caches[i] if caches is not None else None)
        x = self.norm(x)
        if targets is None:
            return self.head(x[:, -1:]), None
        logits = self.head(x).float()
        loss = F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))
        if self.training and self.cfg.z_loss:
            loss = loss + self.cfg.z_loss * torch.logsumexp(logits, -1).pow(2).mean()
        return logits, loss

    @torch.no_grad()
    def generate(self, prompt, max_new, temperature=0.8, top_k=40, stop=None):
        """prompt: (1, T) bytes; stops at the byte `stop`"""
        caches = [{} for _ in self.blocks]
        x, out = prompt, []
        for _ in range(min(max_new, self.cfg.block_size - prompt.shape[1])):
            logits, _ = self(x, caches=caches)
            logits = logits[0, -1].float() / temperature
            kth = torch.topk(logits, min(top_k, logits.shape[0])).values[-1]
            logits = logits.masked_fill(logits < kth, float("-inf"))
            nxt = torch.multinomial(F.softmax(logits, -1), 1)
            out.append(nxt.item())
            if out[-1] == stop:
                break
            x = nxt[None]
        return out
