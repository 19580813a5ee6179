import numpy as np
import torch
from torch import nn


def sincos_2d(grid, dim):
    """2-d sine/cosine position code in float32 (float16 loses the high frequencies)"""
    omega = 1.0 / 10000 ** (np.arange(dim // 4) / (dim / 4.0))
    yy, xx = np.meshgrid(np.arange(grid), np.arange(grid), indexing='ij')
    out = [f(p.reshape(-1, 1) * omega) for p in (yy, xx) for f in (np.sin, np.cos)]
    return torch.tensor(np.concatenate(out, axis=1), dtype=torch.float32)


class Head(nn.Module):
    def __init__(self, dim, head_dim):
        super().__init__()
        self.q = nn.Linear(dim, head_dim)
        self.k = nn.Linear(dim, head_dim)
        self.v = nn.Linear(dim, head_dim)
        self.scale = head_dim ** -0.5

    def forward(self, x):
        att = self.q(x) @ self.k(x).transpose(-2, -1) * self.scale
        att = att.softmax(dim=-1)
        return att @ self.v(x)


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = nn.ModuleList([Head(dim, dim // heads) for _ in range(heads)])
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        return self.proj(torch.cat([h(x) for h in self.heads], dim=-1))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.att = Attention(dim, heads)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        x = x + self.att(self.n1(x))
        return x + self.mlp(self.n2(x))


class MIM(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.p, self.grid = c['patch'], c['img'] // c['patch']
        self.dim, self.dec_dim = c['dim'], c['dec_dim']
        self.to_tok = nn.Linear(c['chans'] * self.p ** 2, c['dim'])
        self.enc = nn.ModuleList([Block(c['dim'], c['heads']) for _ in range(c['depth'])])
        self.norm = nn.LayerNorm(c['dim'])
        self.bridge = nn.Linear(c['dim'], c['dec_dim'])
        self.mask_tok = nn.Parameter(torch.zeros(c['dec_dim']))
        self.dec = nn.ModuleList([Block(c['dec_dim'], c['heads']) for _ in range(c['dec_depth'])])
        self.out = nn.Linear(c['dec_dim'], c['chans'] * self.p ** 2)

    def patchify(self, x):
        b, ch, h, w = x.shape
        x = x.reshape(b, ch, self.grid, self.p, self.grid, self.p)
        return x.permute(0, 2, 4, 1, 3, 5).reshape(b, self.grid ** 2, -1)

    def encode(self, x):
        tok = self.to_tok(self.patchify(x)) + sincos_2d(self.grid, self.dim).to(x.device)
        for blk in self.enc:
            tok = blk(tok)
        return self.norm(tok)

    def forward(self, x, mask):
        patches = self.patchify(x)
        tok = self.to_tok(patches) + sincos_2d(self.grid, self.dim).to(x.device)
        # visible tokens only, every sample has the same number of them
        vis = []
        for i in range(x.shape[0]):
            vis.append(tok[i][~mask[i]])
        h = torch.stack(vis)
        for blk in self.enc:
            h = blk(h)
        h = self.bridge(self.norm(h))
        full = self.mask_tok.repeat(x.shape[0], self.grid ** 2, 1)
        full[~mask] = h.reshape(-1, h.shape[-1])
        full = full + sincos_2d(self.grid, self.dec_dim).to(x.device)
        for blk in self.dec:
            full = blk(full)
        pred = self.out(full)
        # mean of squares on the masked patches, in float32
        err = (pred.float() - patches.float()).pow(2).mean(-1)
        return (err * mask).sum() / mask.sum()
