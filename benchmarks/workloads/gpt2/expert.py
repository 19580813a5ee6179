"""As train.py, tuned by hand: tokens on the device, attention in one call, 16 bits, compiled."""

import argparse
import os

import numpy as np
import torch
import torch.nn as nn
from torch.nn import functional as F


class CausalSelfAttention(nn.Module):
    def __init__(self, n_embd, n_head, block_size, dropout):
        super().__init__()
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        self.c_proj = nn.Linear(n_embd, n_embd)
        self.dropout = dropout
        self.resid_dropout = nn.Dropout(dropout)
        self.n_head = n_head

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(C, dim=2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        return self.resid_dropout(self.c_proj(y))


class Block(nn.Module):
    def __init__(self, n_embd, n_head, block_size, dropout):
        super().__init__()
        self.ln_1 = nn.LayerNorm(n_embd)
        self.attn = CausalSelfAttention(n_embd, n_head, block_size, dropout)
        self.ln_2 = nn.LayerNorm(n_embd)
        layers = [nn.Linear(n_embd, 4 * n_embd), nn.GELU(approximate="tanh")]
        layers += [nn.Linear(4 * n_embd, n_embd), nn.Dropout(dropout)]
        self.mlp = nn.Sequential(*layers)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, vocab_size, block_size, n_layer, n_head, n_embd, dropout):
        super().__init__()
        self.wte = nn.Embedding(vocab_size, n_embd)
        self.wpe = nn.Embedding(block_size, n_embd)
        self.drop = nn.Dropout(dropout)
        blocks = [Block(n_embd, n_head, block_size, dropout) for _ in range(n_layer)]
        self.h = nn.ModuleList(blocks)
        self.ln_f = nn.LayerNorm(n_embd)
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, idx, targets):
        pos = torch.arange(0, idx.size(1), dtype=torch.long, device=idx.device)
        x = self.drop(self.wte(idx) + self.wpe(pos))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--tiny", action="store_true", help="for a CPU, in seconds")
    args = parser.parse_args()
    vocab, block, width, heads, batch = (50257, 1024, 768, 12, 8)
    if args.tiny:
        vocab, block, width, heads, batch, args.steps = 97, 16, 24, 2, 4, 16

    torch.manual_seed(1337)
    np.random.seed(1337)
    if not os.path.exists("train.bin"):
        tokens = np.random.default_rng(0).zipf(1.3, 2_000 * block) % vocab
        tokens.astype(np.uint16).tofile("train.bin")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    on_gpu = device == "cuda"
    torch.set_float32_matmul_precision("high")
    data = torch.from_numpy(np.fromfile("train.bin", dtype=np.uint16).astype(np.int32)).to(device)
    window = torch.arange(block + 1, device=device)

    def get_batch():
        ix = torch.randint(len(data) - block, (batch, 1), device=device)
        tokens = data[ix + window].long()
        return tokens[:, :-1], tokens[:, 1:].contiguous()

    model = GPT(vocab, block, 12, heads, width, dropout=0.1).to(device)
    compiled = torch.compile(model) if on_gpu else model
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True
    )
    losses = []
    model.train()
    for step in range(args.steps):
        x, y = get_batch()
        with torch.autocast(device, torch.bfloat16, enabled=on_gpu):
            loss = compiled(x, y)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.detach())
        if step % 50 == 49 or step == args.steps - 1:
            first = step + 1 - len(losses)
            for n, value in enumerate(torch.stack(losses).tolist()):
                print(f"step {first + n}: loss {value:.4f}")
            losses.clear()


if __name__ == "__main__":
    main()
