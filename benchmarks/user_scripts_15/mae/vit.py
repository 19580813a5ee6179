from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def sincos_2d(dim: int, side: int) -> Tensor:
    omega = 1.0 / 10000 ** (torch.arange(dim // 4, dtype=torch.float64) / (dim / 4))
    pos = torch.arange(side, dtype=torch.float64)
    out = torch.outer(pos, omega)
    emb = torch.cat([out.sin(), out.cos()], 1)
    y = emb[:, None].expand(-1, side, -1)
    x = emb[None].expand(side, -1, -1)
    return torch.cat([y, x], -1).reshape(1, side * side, dim).float()


class Block(nn.Module):
    def __init__(self, dim: int, heads: int, mlp: float = 4.0):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.norm2 = nn.LayerNorm(dim)
        self.fc1 = nn.Linear(dim, int(dim * mlp))
        self.fc2 = nn.Linear(int(dim * mlp), dim)

    def forward(self, x: Tensor) -> Tensor:
        b, n, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(a.transpose(1, 2).reshape(b, n, d))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class MAE(nn.Module):
    def __init__(self, bands: int, size: int, patch: int, dim: int, depth: int, heads: int,
                 dec_dim: int, dec_depth: int, dec_heads: int, mask_ratio: float):
        super().__init__()
        self.patch, self.side = patch, size // patch
        n = self.side ** 2
        self.keep = int(n * (1 - mask_ratio))
        self.embed = nn.Linear(bands * patch * patch, dim)
        self.register_buffer("pos", sincos_2d(dim, self.side), persistent=False)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.to_dec = nn.Linear(dim, dec_dim)
        self.mask_token = nn.Parameter(torch.zeros(1, 1, dec_dim))
        self.register_buffer("dec_pos", sincos_2d(dec_dim, self.side), persistent=False)
        self.dec_blocks = nn.ModuleList(Block(dec_dim, dec_heads) for _ in range(dec_depth))
        self.dec_norm = nn.LayerNorm(dec_dim)
        self.head = nn.Linear(dec_dim, bands * patch * patch)
        self.apply(self._init)
        nn.init.normal_(self.mask_token, std=0.02)

    @staticmethod
    def _init(m: nn.Module) -> None:
        if isinstance(m, nn.Linear):
            nn.init.xavier_uniform_(m.weight)
            nn.init.zeros_(m.bias)

    def patchify(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        p, s = self.patch, self.side
        return x.view(b, c, s, p, s, p).permute(0, 2, 4, 1, 3, 5).reshape(b, s * s, c * p * p)

    def encode(self, tokens: Tensor) -> Tensor:
        for blk in self.blocks:
            tokens = blk(tokens)
        return self.norm(tokens)

    def features(self, x: Tensor) -> Tensor:
        return self.encode(self.embed(self.patchify(x)) + self.pos).mean(1)

    def forward(self, x: Tensor, noise: Tensor) -> Tensor:
        patches = self.patchify(x)
        b, n, _ = patches.shape
        order = noise.argsort(1)
        back = order.argsort(1)
        kept = order[:, : self.keep, None]
        t = self.embed(patches) + self.pos
        t = self.encode(t.gather(1, kept.expand(-1, -1, t.size(-1))))
        t = self.to_dec(t)
        t = torch.cat([t, self.mask_token.to(t.dtype).expand(b, n - self.keep, -1)], 1)
        t = t.gather(1, back[:, :, None].expand(-1, -1, t.size(-1))) + self.dec_pos
        for blk in self.dec_blocks:
            t = blk(t)
        pred = self.head(self.dec_norm(t)).float()
        target = patches.float()
        target = (target - target.mean(-1, keepdim=True)) / (target.var(-1, keepdim=True) + 1e-6).sqrt()
        masked = (back >= self.keep).float()
        return (((pred - target) ** 2).mean(-1) * masked).sum() / masked.sum()
