import math
from typing import Optional, Tuple

import torch
from torch import Tensor, nn


class SelfAttention(nn.Module):
    def __init__(self, d_model: int, n_heads: int, dropout: float):
        super().__init__()
        self.h = n_heads
        self.dk = d_model // n_heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.proj = nn.Linear(d_model, d_model)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        B, T, D = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.h, self.dk).permute(2, 0, 3, 1, 4)
        mask = torch.tril(torch.ones(T, T)).to(x.device)
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.dk)
        scores = scores.masked_fill(mask == 0, float("-inf"))
        attn = self.drop(torch.softmax(scores, dim=-1))
        out = (attn @ v).transpose(1, 2).reshape(B, T, D)
        return self.proj(out)


class ReadoutAttention(nn.Module):
    """Horizon queries attend to the encoded past.  Returns the weights too, they are
    regularised (entropy) and plotted in the notebooks."""

    def __init__(self, d_model: int):
        super().__init__()
        self.q = nn.Linear(d_model, d_model)
        self.k = nn.Linear(d_model, d_model)
        self.v = nn.Linear(d_model, d_model)

    def forward(self, query: Tensor, memory: Tensor) -> Tuple[Tensor, Tensor]:
        scores = self.q(query) @ self.k(memory).transpose(1, 2) / math.sqrt(query.size(-1))
        weights = scores.softmax(-1)
        return weights @ self.v(memory), weights


def positional_encoding(length: int, d_model: int) -> Tensor:
    pe = torch.zeros(length, d_model)
    for pos in range(length):
        for i in range(0, d_model, 2):
            pe[pos, i] = math.sin(pos / 10000 ** (i / d_model))
            pe[pos, i + 1] = math.cos(pos / 10000 ** (i / d_model))
    return pe


class Block(nn.Module):
    def __init__(self, d_model: int, n_heads: int, d_ff: int, dropout: float):
        super().__init__()
        self.attn = SelfAttention(d_model, n_heads, dropout)
        self.ff = nn.Sequential(nn.Linear(d_model, d_ff), nn.GELU(), nn.Dropout(dropout), nn.Linear(d_ff, d_model))
        self.n1 = nn.LayerNorm(d_model)
        self.n2 = nn.LayerNorm(d_model)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.n1(x))
        return x + self.ff(self.n2(x))


class Forecaster(nn.Module):
    def __init__(self, n_series: int, horizon: int, d_model: int, n_heads: int, n_layers: int,
                 d_ff: int, dropout: float, quantiles):
        super().__init__()
        self.horizon = horizon
        self.d_model = d_model
        self.inp = nn.Linear(1 + 3, d_model)
        self.fut = nn.Linear(3, d_model)
        self.series_emb = nn.Embedding(n_series, d_model)
        self.blocks = nn.ModuleList([Block(d_model, n_heads, d_ff, dropout) for _ in range(n_layers)])
        self.readout = ReadoutAttention(d_model)
        self.head = nn.Linear(d_model, len(quantiles))

    def forward(self, past: Tensor, cal: Tensor, series: Optional[Tensor] = None) -> Tuple[Tensor, Tensor]:
        T = past.size(1)
        x = self.inp(torch.cat([past.unsqueeze(-1), cal[:, :T]], dim=-1))
        x = x + positional_encoding(T, self.d_model).to(x.device)
        if series is not None:
            x = x + self.series_emb(series).unsqueeze(1)
        for blk in self.blocks:
            x = blk(x)
        q = self.fut(cal[:, T:])
        y, w = self.readout(q, x)
        return self.head(y), w
