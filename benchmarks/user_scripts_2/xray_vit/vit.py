import torch
import torch.nn as nn


class Attn(nn.Module):
    def __init__(self, dim, heads, p):
        super().__init__()
        self.heads = heads
        self.scale = (dim // heads) ** -0.5
        self.qkv = nn.Linear(dim, dim * 3)
        self.attn_drop = nn.Dropout(p)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        B, N, C = x.shape
        qkv = self.qkv(x).reshape(B, N, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        attn = (q @ k.transpose(-2, -1)) * self.scale
        attn = attn.softmax(dim=-1)
        attn = self.attn_drop(attn)
        x = (attn @ v).transpose(1, 2).reshape(B, N, C)
        return self.proj(x)


class PoolAttn(nn.Module):
    """one learned query; its weights are the heat map shown to the doctor"""

    def __init__(self, dim):
        super().__init__()
        self.q = nn.Parameter(torch.zeros(dim))
        self.last = None

    def forward(self, x):
        w = (x @ self.q / x.shape[-1] ** 0.5).softmax(1)
        self.last = w
        return (w[..., None] * x).sum(1)


class Block(nn.Module):
    def __init__(self, dim, heads, p):
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(dim), Attn(dim, heads, p)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self, size=224, patch=16, width=384, depth=12, heads=6, p=0.0):
        super().__init__()
        n = (size // patch) ** 2
        self.stem = nn.Conv2d(1, width, patch, stride=patch)
        self.pos = nn.Parameter(torch.randn(1, n, width) * 0.02)
        self.sex = nn.Linear(1, width)
        self.blocks = nn.ModuleList([Block(width, heads, p) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.pool = PoolAttn(width)
        self.head = nn.Linear(width, 2)

    def forward(self, x, sex):
        x = self.stem(x).flatten(2).transpose(1, 2) + self.pos
        x = x + self.sex(sex)[:, None]
        for b in self.blocks:
            x = b(x)
        mu, log_s = self.head(self.pool(self.norm(x))).unbind(1)
        return mu, log_s.clamp(-4, 3)
