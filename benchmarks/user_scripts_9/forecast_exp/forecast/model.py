import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class TriangularCausalMask:
    def __init__(self, B, L, device="cpu"):
        with torch.no_grad():
            self._mask = torch.triu(torch.ones([B, 1, L, L], dtype=torch.bool), diagonal=1).to(device)

    @property
    def mask(self):
        return self._mask


class FullAttention(nn.Module):
    def __init__(self, mask_flag=True, attention_dropout=0.1):
        super().__init__()
        self.mask_flag = mask_flag
        self.dropout = nn.Dropout(attention_dropout)

    def forward(self, queries, keys, values):
        B, L, H, E = queries.shape
        scale = 1. / math.sqrt(E)
        scores = torch.einsum("blhe,bshe->bhls", queries, keys)
        if self.mask_flag:
            attn_mask = TriangularCausalMask(B, L, device=queries.device)
            scores.masked_fill_(attn_mask.mask, -np.inf)
        A = self.dropout(torch.softmax(scale * scores, dim=-1))
        V = torch.einsum("bhls,bshd->blhd", A, values)
        return V.contiguous()


class AttentionLayer(nn.Module):
    def __init__(self, attention, d_model, n_heads):
        super().__init__()
        self.inner = attention
        self.n_heads = n_heads
        self.q = nn.Linear(d_model, d_model)
        self.k = nn.Linear(d_model, d_model)
        self.v = nn.Linear(d_model, d_model)
        self.out = nn.Linear(d_model, d_model)

    def forward(self, q, k, v):
        B, L, _ = q.shape
        S = k.shape[1]
        H = self.n_heads
        out = self.inner(self.q(q).view(B, L, H, -1), self.k(k).view(B, S, H, -1), self.v(v).view(B, S, H, -1))
        return self.out(out.view(B, L, -1))


class DataEmbedding(nn.Module):
    def __init__(self, c_in, d_model, dropout):
        super().__init__()
        self.value = nn.Conv1d(c_in, d_model, 3, padding=1, padding_mode='circular', bias=False)
        self.temporal = nn.Linear(4, d_model, bias=False)
        self.d_model = d_model
        self.dropout = nn.Dropout(dropout)

    def position(self, length):
        pe = torch.zeros(length, self.d_model)
        position = torch.arange(0, length).float().unsqueeze(1)
        div_term = (torch.arange(0, self.d_model, 2).float() * -(math.log(10000.0) / self.d_model)).exp()
        pe[:, 0::2] = torch.sin(position * div_term)
        pe[:, 1::2] = torch.cos(position * div_term)
        return pe

    def forward(self, x, x_mark):
        x_v = self.value(x.permute(0, 2, 1)).transpose(1, 2)
        x = x_v + self.temporal(x_mark) + self.position(x.size(1)).to(x.device)
        return self.dropout(x)


class ConvLayer(nn.Module):
    """Distilling layer of the Informer: halves the length."""

    def __init__(self, c_in):
        super().__init__()
        self.conv = nn.Conv1d(c_in, c_in, 3, padding=1, padding_mode='circular')
        self.norm = nn.BatchNorm1d(c_in)
        self.act = nn.ELU()
        self.pool = nn.MaxPool1d(3, stride=2, padding=1)

    def forward(self, x):
        x = self.pool(self.act(self.norm(self.conv(x.permute(0, 2, 1)))))
        return x.transpose(1, 2)


class FFN(nn.Module):
    def __init__(self, d_model, d_ff, dropout):
        super().__init__()
        self.fc1 = nn.Linear(d_model, d_ff)
        self.fc2 = nn.Linear(d_ff, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return self.dropout(self.fc2(self.dropout(F.gelu(self.fc1(x)))))


class EncoderLayer(nn.Module):
    def __init__(self, d_model, n_heads, d_ff, dropout):
        super().__init__()
        self.attn = AttentionLayer(FullAttention(False, dropout), d_model, n_heads)
        self.ffn = FFN(d_model, d_ff, dropout)
        self.norm1 = nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        x = self.norm1(x + self.dropout(self.attn(x, x, x)))
        return self.norm2(x + self.ffn(x))


class DecoderLayer(nn.Module):
    def __init__(self, d_model, n_heads, d_ff, dropout):
        super().__init__()
        self.self_attn = AttentionLayer(FullAttention(True, dropout), d_model, n_heads)
        self.cross_attn = AttentionLayer(FullAttention(False, dropout), d_model, n_heads)
        self.ffn = FFN(d_model, d_ff, dropout)
        self.norms = nn.ModuleList([nn.LayerNorm(d_model) for _ in range(3)])
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, memory):
        x = self.norms[0](x + self.dropout(self.self_attn(x, x, x)))
        x = self.norms[1](x + self.dropout(self.cross_attn(x, memory, memory)))
        return self.norms[2](x + self.ffn(x))


class Forecaster(nn.Module):
    def __init__(self, c_in, c_out, pred_len, d_model=512, n_heads=8, e_layers=3, d_layers=1, d_ff=2048, dropout=0.05):
        super().__init__()
        self.pred_len = pred_len
        self.enc_embedding = DataEmbedding(c_in, d_model, dropout)
        self.dec_embedding = DataEmbedding(c_in, d_model, dropout)
        self.encoder = nn.ModuleList([EncoderLayer(d_model, n_heads, d_ff, dropout) for _ in range(e_layers)])
        self.distil = nn.ModuleList([ConvLayer(d_model) for _ in range(e_layers - 1)])
        self.decoder = nn.ModuleList([DecoderLayer(d_model, n_heads, d_ff, dropout) for _ in range(d_layers)])
        self.enc_norm = nn.LayerNorm(d_model)
        self.projection = nn.Linear(d_model, c_out)

    def forward(self, x_enc, x_mark_enc, x_dec, x_mark_dec):
        enc = self.enc_embedding(x_enc, x_mark_enc)
        for i, layer in enumerate(self.encoder):
            enc = layer(enc)
            if i < len(self.distil):
                enc = self.distil[i](enc)
        enc = self.enc_norm(enc)
        dec = self.dec_embedding(x_dec, x_mark_dec)
        for layer in self.decoder:
            dec = layer(dec, enc)
        return self.projection(dec)[:, -self.pred_len:, :]
