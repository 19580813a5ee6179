import torch
import torch.nn as nn
import torch.nn.functional as F

from layers.Attention import AttentionLayer, FullAttention
from layers.Embed import DataEmbedding


class EncoderLayer(nn.Module):
    def __init__(self, d_model, n_heads, d_ff, dropout):
        super(EncoderLayer, self).__init__()
        self.attention = AttentionLayer(FullAttention(False, dropout), d_model, n_heads)
        self.conv1 = nn.Conv1d(d_model, d_ff, kernel_size=1)
        self.conv2 = nn.Conv1d(d_ff, d_model, kernel_size=1)
        self.norm1 = nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        x = self.norm1(x + self.dropout(self.attention(x, x, x)))
        y = self.dropout(F.gelu(self.conv1(x.transpose(-1, 1))))
        y = self.dropout(self.conv2(y).transpose(-1, 1))
        return self.norm2(x + y)


class DecoderLayer(nn.Module):
    def __init__(self, d_model, n_heads, d_ff, dropout):
        super(DecoderLayer, self).__init__()
        self.self_attention = AttentionLayer(FullAttention(True, dropout), d_model, n_heads)
        self.cross_attention = AttentionLayer(FullAttention(False, dropout), d_model, n_heads)
        self.conv1 = nn.Conv1d(d_model, d_ff, kernel_size=1)
        self.conv2 = nn.Conv1d(d_ff, d_model, kernel_size=1)
        self.norm1 = nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model)
        self.norm3 = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, cross):
        x = self.norm1(x + self.dropout(self.self_attention(x, x, x)))
        x = self.norm2(x + self.dropout(self.cross_attention(x, cross, cross)))
        y = self.dropout(F.gelu(self.conv1(x.transpose(-1, 1))))
        y = self.dropout(self.conv2(y).transpose(-1, 1))
        return self.norm3(x + y)


class Model(nn.Module):
    """Vanilla Transformer with instance normalisation of the series"""

    def __init__(self, configs):
        super(Model, self).__init__()
        self.pred_len = configs.pred_len
        self.enc_embedding = DataEmbedding(configs.enc_in, configs.d_model, dropout=configs.dropout)
        self.dec_embedding = DataEmbedding(configs.dec_in, configs.d_model, dropout=configs.dropout)
        self.encoder = nn.ModuleList([EncoderLayer(configs.d_model, configs.n_heads, configs.d_ff, configs.dropout)
                                      for _ in range(configs.e_layers)])
        self.decoder = nn.ModuleList([DecoderLayer(configs.d_model, configs.n_heads, configs.d_ff, configs.dropout)
                                      for _ in range(configs.d_layers)])
        self.projection = nn.Linear(configs.d_model, configs.c_out)

    def forward(self, x_enc, x_mark_enc, x_dec, x_mark_dec):
        means = x_enc.mean(1, keepdim=True).detach()
        stdev = torch.sqrt(torch.var(x_enc, dim=1, keepdim=True, unbiased=False) + 1e-5).detach()
        x_enc = (x_enc - means) / stdev
        x_dec = (x_dec - means) / stdev

        enc_out = self.enc_embedding(x_enc, x_mark_enc)
        for layer in self.encoder:
            enc_out = layer(enc_out)
        dec_out = self.dec_embedding(x_dec, x_mark_dec)
        for layer in self.decoder:
            dec_out = layer(dec_out, enc_out)
        dec_out = self.projection(dec_out)
        return (dec_out * stdev + means)[:, -self.pred_len:, :]
