import math

import torch
from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.num_heads = cfg.heads
        self.head_dim = cfg.hidden // cfg.heads
        self.query = nn.Linear(cfg.hidden, cfg.hidden)
        self.key = nn.Linear(cfg.hidden, cfg.hidden)
        self.value = nn.Linear(cfg.hidden, cfg.hidden)
        self.dropout = nn.Dropout(cfg.attn_dropout)

    def transpose_for_scores(self, x):
        b, t, _ = x.size()
        return x.view(b, t, self.num_heads, self.head_dim).permute(0, 2, 1, 3)

    def forward(self, hidden_states, attention_mask):
        q = self.transpose_for_scores(self.query(hidden_states))
        k = self.transpose_for_scores(self.key(hidden_states))
        v = self.transpose_for_scores(self.value(hidden_states))
        scores = torch.matmul(q, k.transpose(-1, -2))
        scores = scores / math.sqrt(self.head_dim)
        scores = scores + attention_mask
        probs = nn.functional.softmax(scores, dim=-1)
        probs = self.dropout(probs)
        context = torch.matmul(probs, v)
        context = context.permute(0, 2, 1, 3).contiguous()
        return context.view(context.size(0), context.size(1), -1)


class AttentionPooler(nn.Module):
    """One learned query over the tokens; the weights are returned for the html report."""

    def __init__(self, cfg):
        super().__init__()
        self.query = nn.Parameter(torch.randn(cfg.hidden) * 0.02)
        self.key = nn.Linear(cfg.hidden, cfg.hidden)

    def forward(self, x, mask):
        scores = (self.key(x) @ self.query) / math.sqrt(x.size(-1))
        scores = scores.masked_fill(mask == 0, -1e4)
        weights = scores.softmax(-1)
        return torch.einsum("bt,btd->bd", weights, x), weights


class Layer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.attn = SelfAttention(cfg)
        self.proj = nn.Linear(cfg.hidden, cfg.hidden)
        self.ln1 = nn.LayerNorm(cfg.hidden, eps=1e-12)
        self.ln2 = nn.LayerNorm(cfg.hidden, eps=1e-12)
        self.fc1 = nn.Linear(cfg.hidden, 4 * cfg.hidden)
        self.fc2 = nn.Linear(4 * cfg.hidden, cfg.hidden)
        self.dropout = nn.Dropout(cfg.dropout)

    def gelu(self, x):
        return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))

    def forward(self, x, mask):
        x = self.ln1(x + self.dropout(self.proj(self.attn(x, mask))))
        return self.ln2(x + self.dropout(self.fc2(self.gelu(self.fc1(x)))))


class Classifier(nn.Module):
    def __init__(self, cfg, vocab_size):
        super().__init__()
        self.word = nn.Embedding(vocab_size, cfg.hidden, padding_idx=0)
        self.pos = nn.Embedding(64, cfg.hidden)
        self.seg = nn.Embedding(2, cfg.hidden)
        self.ln = nn.LayerNorm(cfg.hidden, eps=1e-12)
        self.dropout = nn.Dropout(cfg.dropout)
        self.layers = nn.ModuleList(Layer(cfg) for _ in range(cfg.layers))
        self.pooler = AttentionPooler(cfg)
        self.out = nn.Linear(cfg.hidden, 3)

    def forward(self, input_ids, token_type_ids, attention_mask, output_attentions=False):
        position_ids = torch.arange(input_ids.size(1)).unsqueeze(0).to(input_ids.device)
        x = self.word(input_ids) + self.pos(position_ids) + self.seg(token_type_ids)
        x = self.dropout(self.ln(x))
        ext = (1.0 - attention_mask[:, None, None, :].to(x.dtype)) * -10000.0
        for layer in self.layers:
            x = layer(x, ext)
        pooled, weights = self.pooler(x, attention_mask)
        logits = self.out(self.dropout(pooled))
        return (logits, weights) if output_attentions else logits
