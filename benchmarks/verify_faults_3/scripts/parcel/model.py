import torch
from torch import nn

from .data import PAD


class Encoder(nn.Module):
    def __init__(self, words, width=32, heads=4, layers=2):
        super().__init__()
        self.embed, self.place = nn.Embedding(words, width, padding_idx=PAD), nn.Embedding(20, width)
        nn.init.normal_(self.embed.weight, std=0.15)
        layer = nn.TransformerEncoderLayer(width, heads, 64, dropout=0.1, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words)
        self.head.weight = self.embed.weight

    def forward(self, words):
        x = self.embed(words) * 4 + self.place(torch.arange(words.shape[1]))
        x = self.body(x, src_key_padding_mask=words == PAD)
        return self.head(self.norm(x))
