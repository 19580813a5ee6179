"""SASRec (Kang & McAuley 2018), pre-norm variant."""
import torch
from torch import nn


class FeedForward(nn.Module):
    def __init__(self, dim: int, dropout: float):
        super().__init__()
        self.inner = nn.Conv1d(dim, dim, kernel_size=1)
        self.outer = nn.Conv1d(dim, dim, kernel_size=1)
        self.drop1 = nn.Dropout(dropout)
        self.drop2 = nn.Dropout(dropout)

    def forward(self, x):
        y = self.drop1(torch.relu(self.inner(x.transpose(-1, -2))))
        y = self.drop2(self.outer(y)).transpose(-1, -2)
        return x + y


class SASRec(nn.Module):
    def __init__(self, items: int, max_len: int, dim: int, heads: int, layers: int, dropout: float):
        super().__init__()
        self.dim = dim
        self.item_emb = nn.Embedding(items + 1, dim, padding_idx=0)
        self.pos_emb = nn.Embedding(max_len, dim)
        self.drop = nn.Dropout(dropout)
        self.attn_norm = nn.ModuleList([nn.LayerNorm(dim, eps=1e-8) for _ in range(layers)])
        self.attn = nn.ModuleList([nn.MultiheadAttention(dim, heads, dropout) for _ in range(layers)])
        self.ffn_norm = nn.ModuleList([nn.LayerNorm(dim, eps=1e-8) for _ in range(layers)])
        self.ffn = nn.ModuleList([FeedForward(dim, dropout) for _ in range(layers)])
        self.last_norm = nn.LayerNorm(dim, eps=1e-8)
        for name, p in self.named_parameters():
            if p.dim() > 1:
                nn.init.xavier_normal_(p.data)
        with torch.no_grad():
            self.item_emb.weight[0].fill_(0)

    def encode(self, seq):
        device = self.item_emb.weight.device
        x = self.item_emb(seq) * self.dim ** 0.5
        positions = torch.arange(seq.shape[1]).unsqueeze(0).repeat(seq.shape[0], 1).to(device)
        x = self.drop(x + self.pos_emb(positions))
        keep = (seq != 0).unsqueeze(-1)
        x = x * keep
        length = seq.shape[1]
        causal = ~torch.tril(torch.ones((length, length), dtype=torch.bool)).to(device)
        for norm1, attn, norm2, ffn in zip(self.attn_norm, self.attn, self.ffn_norm, self.ffn):
            # padded positions are zeroed after each block and not masked as keys, as in the reference code
            q = norm1(x).transpose(0, 1)
            y, _ = attn(q, q, q, attn_mask=causal)
            x = x + y.transpose(0, 1)
            x = ffn(norm2(x)) * keep
        return self.last_norm(x)

    def forward(self, seq, pos, neg):
        h = self.encode(seq)
        return (h * self.item_emb(pos)).sum(-1), (h * self.item_emb(neg)).sum(-1)

    def score(self, seq, candidates):
        """seq (B,L), candidates (B,C) -> (B,C)"""
        h = self.encode(seq)[:, -1]
        return torch.einsum("bd,bcd->bc", h, self.item_emb(candidates))
