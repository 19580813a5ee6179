import math
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class GPTConfig:
    vocab_size: int = 65
    block_size: int = 256
    n_layer: int = 6
    n_head: int = 6
    n_embd: int = 384
    dropout: float = 0.2


class LayerNorm(nn.Module):
    """written out once to understand it"""

    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.gamma = nn.Parameter(torch.ones(dim))
        self.beta = nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        var = x.var(-1, keepdim=True, unbiased=False)
        return self.gamma * (x - mean) / torch.sqrt(var + self.eps) + self.beta


def rotate(x):
    """rotary position embedding for one head, x: (B, T, hs)"""
    B, T, hs = x.shape
    half = hs // 2
    freq = 1.0 / (10000 ** (torch.arange(0, half).float() / half))
    ang = (torch.arange(T).float()[:, None] * freq[None, :]).to(x.device)
    cos, sin = ang.cos(), ang.sin()
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


class Head(nn.Module):
    """one head of self-attention"""

    def __init__(self, c):
        super().__init__()
        hs = c.n_embd // c.n_head
        self.key = nn.Linear(c.n_embd, hs, bias=False)
        self.query = nn.Linear(c.n_embd, hs, bias=False)
        self.value = nn.Linear(c.n_embd, hs, bias=False)
        self.register_buffer("tril", torch.tril(torch.ones(c.block_size, c.block_size)))
        self.dropout = nn.Dropout(c.dropout)

    def forward(self, x):
        B, T, C = x.shape
        k, q, v = rotate(self.key(x)), rotate(self.query(x)), self.value(x)
        wei = q @ k.transpose(-2, -1) * k.shape[-1] ** -0.5
        wei = wei.masked_fill(self.tril[:T, :T] == 0, float("-inf"))
        wei = F.softmax(wei, dim=-1)
        return self.dropout(wei) @ v


class MultiHead(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads = nn.ModuleList([Head(c) for _ in range(c.n_head)])
        self.proj = nn.Linear(c.n_embd, c.n_embd)
        self.dropout = nn.Dropout(c.dropout)

    def forward(self, x):
        return self.dropout(self.proj(torch.cat([h(x) for h in self.heads], dim=-1)))


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.ln1, self.ln2 = LayerNorm(c.n_embd), LayerNorm(c.n_embd)
        self.sa = MultiHead(c)
        self.ffwd = nn.Sequential(nn.Linear(c.n_embd, 4 * c.n_embd), nn.GELU(), nn.Linear(4 * c.n_embd, c.n_embd), nn.Dropout(c.dropout))

    def forward(self, x):
        x = x + self.sa(self.ln1(x))
        return x + self.ffwd(self.ln2(x))


class GPT(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.wte = nn.Embedding(c.vocab_size, c.n_embd)
        self.drop = nn.Dropout(c.dropout)
        self.blocks = nn.ModuleList([Block(c) for _ in range(c.n_layer)])
        self.ln_f = LayerNorm(c.n_embd)
        self.lm_head = nn.Linear(c.n_embd, c.vocab_size, bias=False)
        self.lm_head.weight = self.wte.weight
        self.apply(self._init_weights)
        for n, p in self.named_parameters():
            if n.endswith("proj.weight"):
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * c.n_layer))

    def _init_weights(self, m):
        if isinstance(m, (nn.Linear, nn.Embedding)):
            nn.init.normal_(m.weight, std=0.02)
            if getattr(m, "bias", None) is not None:
                nn.init.zeros_(m.bias)

    def forward(self, idx, targets=None):
        x = self.drop(self.wte(idx))
        for b in self.blocks:
            x = b(x)
        logits = self.lm_head(self.ln_f(x))
        if targets is None:
            return logits, None
        logp = F.log_softmax(logits, dim=-1)
        loss = -(F.one_hot(targets, self.c.vocab_size).float() * logp).sum(-1).mean()
        return logits, loss

    def generate(self, idx, n, temperature=1.0):
        self.eval()
        for _ in range(n):
            logits, _ = self(idx[:, -self.c.block_size:])
            probs = F.softmax(logits[:, -1] / temperature, dim=-1)
            idx = torch.cat([idx, torch.multinomial(probs, 1)], 1)
        self.train()
        return idx
