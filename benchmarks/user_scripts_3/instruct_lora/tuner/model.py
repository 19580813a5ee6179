"""A small decoder (RMSNorm, rotary, SwiGLU) plus LoRA adapters."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def rotary(x):
    b, h, t, d = x.shape
    pos = torch.arange(t, device=x.device, dtype=torch.float32)
    inv = 1.0 / (10000 ** (torch.arange(0, d, 2).float().to(x.device) / d))
    ang = pos[:, None] * inv[None]
    cos, sin = ang.cos().to(x.dtype), ang.sin().to(x.dtype)
    x1, x2 = x[..., 0::2], x[..., 1::2]
    return torch.stack([x1 * cos - x2 * sin, x1 * sin + x2 * cos], -1).flatten(-2)


class LoRALinear(nn.Module):
    def __init__(self, base, r, alpha):
        super().__init__()
        self.base = base
        for p in base.parameters():
            p.requires_grad_(False)
        self.A = nn.Parameter(torch.randn(r, base.in_features) / math.sqrt(base.in_features))
        self.B = nn.Parameter(torch.zeros(base.out_features, r))
        self.scale = alpha / r

    def forward(self, x):
        return self.base(x) + (x @ self.A.t() @ self.B.t()) * self.scale


class Attention(nn.Module):
    def __init__(self, dim, heads, max_len):
        super().__init__()
        self.heads = heads
        self.q_proj, self.k_proj = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.v_proj, self.o_proj = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.register_buffer("mask", torch.tril(torch.ones(max_len, max_len)).bool(), persistent=False)

    def forward(self, x, key_pad):
        b, t, c = x.shape
        def split(y): return y.view(b, t, self.heads, c // self.heads).transpose(1, 2)
        q, k, v = rotary(split(self.q_proj(x))), rotary(split(self.k_proj(x))), split(self.v_proj(x))
        att = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
        att = att.masked_fill(~self.mask[:t, :t], float("-inf"))
        att = att.masked_fill(key_pad[:, None, None, :], -1e4)
        att = F.softmax(att, dim=-1)
        return self.o_proj((att @ v).transpose(1, 2).reshape(b, t, c))


class Block(nn.Module):
    def __init__(self, dim, heads, max_len):
        super().__init__()
        self.n1, self.n2 = RMSNorm(dim), RMSNorm(dim)
        self.attn = Attention(dim, heads, max_len)
        self.gate, self.up = nn.Linear(dim, 2 * dim, bias=False), nn.Linear(dim, 2 * dim, bias=False)
        self.down = nn.Linear(2 * dim, dim, bias=False)

    def forward(self, x, key_pad):
        x = x + self.attn(self.n1(x), key_pad)
        return x + self.down(F.silu(self.gate(self.n2(x))) * self.up(self.n2(x)))


class TinyLM(nn.Module):
    def __init__(self, vocab, dim=64, layers=3, heads=4, max_len=64, pad_id=0):
        super().__init__()
        self.pad_id = pad_id
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList([Block(dim, heads, max_len) for _ in range(layers)])
        self.norm = RMSNorm(dim)
        self.lm_head = nn.Linear(dim, vocab, bias=False)
        self.lm_head.weight = self.embed.weight

    def forward(self, input_ids, labels=None):
        key_pad = input_ids == self.pad_id
        x = self.embed(input_ids)
        for blk in self.blocks:
            x = blk(x, key_pad)
        logits = self.lm_head(self.norm(x))
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits[:, :-1].reshape(-1, logits.size(-1)).float(),
                                   labels[:, 1:].reshape(-1), ignore_index=-100, reduction="sum")
        return {"loss": loss, "logits": logits}


def add_lora(model, r, alpha, names=("q_proj", "v_proj", "up")):
    for module in list(model.modules()):
        for name in names:
            child = getattr(module, name, None)
            if isinstance(child, nn.Linear):
                setattr(module, name, LoRALinear(child, r, alpha))
    for n, p in model.named_parameters():
        p.requires_grad_(n.endswith((".A", ".B")) or "norm" in n)
    return model
