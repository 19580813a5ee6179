# Adapted from the usual BERT code, trimmed to what token classification needs.
import math
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class MiniConfig:
    vocab_size: int = 30522
    hidden_size: int = 768
    num_layers: int = 12
    num_heads: int = 12
    intermediate_size: int = 3072
    max_positions: int = 512
    num_labels: int = 9
    dropout: float = 0.1


class SelfAttention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.h, self.d = c.num_heads, c.hidden_size // c.num_heads
        self.query, self.key, self.value = (nn.Linear(c.hidden_size, c.hidden_size) for _ in range(3))
        self.out = nn.Linear(c.hidden_size, c.hidden_size)
        self.dropout = nn.Dropout(c.dropout)

    def split(self, x):
        return x.view(x.size(0), x.size(1), self.h, self.d).permute(0, 2, 1, 3)

    def forward(self, x, attention_mask):
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(self.d)
        ext = (1.0 - attention_mask[:, None, None, :].to(x.dtype)) * -10000.0
        probs = self.dropout(torch.softmax(scores + ext, dim=-1))
        ctx = torch.matmul(probs, v).permute(0, 2, 1, 3).contiguous()
        return self.out(ctx.view(x.size(0), x.size(1), -1))


def gelu(x):
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.attention = SelfAttention(c)
        self.norm1, self.norm2 = nn.LayerNorm(c.hidden_size, eps=1e-12), nn.LayerNorm(c.hidden_size, eps=1e-12)
        self.fc1, self.fc2 = nn.Linear(c.hidden_size, c.intermediate_size), nn.Linear(c.intermediate_size, c.hidden_size)
        self.dropout = nn.Dropout(c.dropout)

    def forward(self, x, mask):
        x = self.norm1(x + self.dropout(self.attention(x, mask)))
        return self.norm2(x + self.dropout(self.fc2(gelu(self.fc1(x)))))


class MiniForTokenClassification(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.config = c
        self.word = nn.Embedding(c.vocab_size, c.hidden_size, padding_idx=0)
        self.position = nn.Embedding(c.max_positions, c.hidden_size)
        self.norm, self.dropout = nn.LayerNorm(c.hidden_size, eps=1e-12), nn.Dropout(c.dropout)
        self.layers = nn.ModuleList([Layer(c) for _ in range(c.num_layers)])
        self.classifier = nn.Linear(c.hidden_size, c.num_labels)
        self.apply(self._init)

    def _init(self, m):
        if isinstance(m, (nn.Linear, nn.Embedding)):
            m.weight.data.normal_(0.0, 0.02)

    def forward(self, input_ids, attention_mask):
        pos = torch.arange(input_ids.size(1), dtype=torch.long).to(input_ids.device)
        x = self.dropout(self.norm(self.word(input_ids) + self.position(pos)[None]))
        hidden = [x]
        for layer in self.layers:
            x = layer(x, attention_mask)
            hidden.append(x)
        return self.classifier(x), hidden
