import math
from dataclasses import dataclass
from typing import Optional

import torch
from torch import nn
import torch.nn.functional as F


@dataclass
class TinyConfig:
    vocab_size: int = 64
    hidden_size: int = 64
    num_heads: int = 4
    num_layers: int = 3
    intermediate_size: int = 128
    max_positions: int = 64
    num_labels: int = 3
    attn_dropout: float = 0.1
    hidden_dropout: float = 0.1
    pad_token_id: int = 0


@dataclass
class ClassifierOutput:
    loss: Optional[torch.Tensor]
    logits: torch.Tensor


class TinySelfAttention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.h, self.d = cfg.num_heads, cfg.hidden_size // cfg.num_heads
        self.query = nn.Linear(cfg.hidden_size, cfg.hidden_size)
        self.key = nn.Linear(cfg.hidden_size, cfg.hidden_size)
        self.value = nn.Linear(cfg.hidden_size, cfg.hidden_size)
        self.out = nn.Linear(cfg.hidden_size, cfg.hidden_size)
        self.dropout = nn.Dropout(cfg.attn_dropout)

    def transpose_for_scores(self, x):
        return x.view(x.size(0), x.size(1), self.h, self.d).permute(0, 2, 1, 3)

    def forward(self, hidden_states, attention_mask):
        q = self.transpose_for_scores(self.query(hidden_states))
        k = self.transpose_for_scores(self.key(hidden_states))
        v = self.transpose_for_scores(self.value(hidden_states))
        extended = (1.0 - attention_mask[:, None, None, :].float()) * -10000.0
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(self.d)
        probs = self.dropout(torch.softmax(scores + extended, dim=-1))
        ctx = torch.matmul(probs, v).permute(0, 2, 1, 3).contiguous()
        return self.out(ctx.view(ctx.size(0), ctx.size(1), -1))


class TinyLayer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.attention = TinySelfAttention(cfg)
        self.ln1 = nn.LayerNorm(cfg.hidden_size)
        self.intermediate = nn.Linear(cfg.hidden_size, cfg.intermediate_size)
        self.output = nn.Linear(cfg.intermediate_size, cfg.hidden_size)
        self.ln2 = nn.LayerNorm(cfg.hidden_size)
        self.dropout = nn.Dropout(cfg.hidden_dropout)

    def forward(self, x, mask):
        x = self.ln1(x + self.dropout(self.attention(x, mask)))
        return self.ln2(x + self.dropout(self.output(F.gelu(self.intermediate(x)))))


class AttentionPool(nn.Module):
    """one learned query over the sequence"""

    def __init__(self, cfg):
        super().__init__()
        self.score = nn.Linear(cfg.hidden_size, 1)

    def forward(self, x, mask):
        s = self.score(torch.tanh(x)).squeeze(-1).masked_fill(mask == 0, float("-inf"))
        return torch.einsum("bl,bld->bd", s.softmax(-1), x)


class TinyForSequenceClassification(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.config = cfg
        self.word = nn.Embedding(cfg.vocab_size, cfg.hidden_size, padding_idx=cfg.pad_token_id)
        self.position = nn.Embedding(cfg.max_positions, cfg.hidden_size)
        self.ln = nn.LayerNorm(cfg.hidden_size)
        self.layers = nn.ModuleList([TinyLayer(cfg) for _ in range(cfg.num_layers)])
        self.pool = AttentionPool(cfg)
        self.dropout = nn.Dropout(cfg.hidden_dropout)
        self.classifier = nn.Linear(cfg.hidden_size, cfg.num_labels)
        self.apply(self._init)

    def _init(self, m):
        if isinstance(m, (nn.Linear, nn.Embedding)):
            m.weight.data.normal_(0, 0.05)
        if isinstance(m, nn.Embedding) and m.padding_idx is not None:
            m.weight.data[m.padding_idx].zero_()

    def forward(self, input_ids, attention_mask, labels=None, label_smoothing=0.0):
        position_ids = torch.arange(input_ids.size(1)).unsqueeze(0).to(input_ids.device)
        x = self.dropout(self.ln(self.word(input_ids) + self.position(position_ids)))
        for layer in self.layers:
            x = layer(x, attention_mask)
        logits = self.classifier(self.dropout(self.pool(x, attention_mask)))
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits.float(), labels, label_smoothing=label_smoothing)
        return ClassifierOutput(loss, logits)
