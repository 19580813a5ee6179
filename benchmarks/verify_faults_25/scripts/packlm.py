"""Small causal LM on short documents packed into fixed-length rows (block-diagonal attention)."""
import argparse
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, BOS, EOS, PAD = 40, 0, 1, 2


def make_docs(n, rng):
    """Every document has one of 6 topics; a topic is its own sparse second-order chain."""
    tables = np.random.default_rng(77).integers(3, VOCAB, size=(6, 7, VOCAB, 3))
    docs = []
    for _ in range(n):
        topic = rng.integers(6)
        length = int(rng.integers(6, 40))
        toks = [BOS, int(3 + topic)]
        while len(toks) < length:
            nxt = tables[topic, toks[-2] % 7, toks[-1]]
            toks.append(int(nxt[0] if rng.random() < 0.75 else nxt[1 + rng.integers(2)]))
        docs.append(toks + [EOS])
    return docs


def pack(docs, order, row_len):
    """Greedy packing, in order. Returns tokens, targets, document ids and positions."""
    rows, cur = [], []  # rows of document numbers
    for i in order:
        if sum(len(docs[j]) for j in cur) + len(docs[i]) > row_len:
            rows.append(cur)
            cur = []
        cur.append(i)
    rows.append(cur)
    tok = torch.full((len(rows), row_len), PAD)
    tgt = torch.full((len(rows), row_len), -100)
    doc = torch.full((len(rows), row_len), -1)
    pos = torch.zeros((len(rows), row_len), dtype=torch.long)
    for r, members in enumerate(rows):
        at = 0
        for k, i in enumerate(members):
            d = torch.tensor(docs[i])
            tok[r, at:at + len(d)] = d
            tgt[r, at:at + len(d) - 1] = d[1:]
            doc[r, at:at + len(d)] = k
            pos[r, at:at + len(d)] = torch.arange(len(d))
            at += len(d)
    return tok, tgt, doc, pos


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.hd = heads, dim // heads
        self.q = nn.Linear(dim, dim, bias=False)
        self.k = nn.Linear(dim, dim, bias=False)
        self.v = nn.Linear(dim, dim, bias=False)
        self.o = nn.Linear(dim, dim, bias=False)

    def forward(self, x, doc):
        B, T, D = x.shape
        q = self.q(x).view(B, T, self.heads, self.hd).transpose(1, 2)
        k = self.k(x).view(B, T, self.heads, self.hd).transpose(1, 2)
        v = self.v(x).view(B, T, self.heads, self.hd).transpose(1, 2)
        same = doc[:, :, None] == doc[:, None, :]
        causal = torch.ones(T, T, dtype=torch.bool, device=x.device).tril()
        allowed = (same & causal)[:, None]
        att = (q @ k.transpose(-2, -1)) / math.sqrt(self.hd)
        att = att.masked_fill(~allowed, float("-inf")).softmax(-1)
        y = (att @ v).transpose(1, 2).reshape(B, T, D)
        return self.o(y)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = Attention(dim, heads)
        self.mlp = nn.Sequential(nn.Linear(dim, 3 * dim), nn.GELU(), nn.Linear(3 * dim, dim))

    def forward(self, x, doc):
        x = x + self.attn(self.ln1(x), doc)
        return x + self.mlp(self.ln2(x))


class LM(nn.Module):
    def __init__(self, dim=48, heads=4, layers=2, max_pos=64):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, dim), nn.Embedding(max_pos, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, VOCAB, bias=False)
        for m in self.modules():
            if isinstance(m, (nn.Linear, nn.Embedding)):
                nn.init.normal_(m.weight, std=0.05)

    def forward(self, tok, doc, pos):
        x = self.tok(tok) + self.pos(pos)
        for b in self.blocks:
            x = b(x, doc)
        return self.head(self.ln_f(x))


def loss_sum(model, batch):
    tok, tgt, doc, pos = batch
    logits = model(tok, doc, pos)
    return F.cross_entropy(logits.view(-1, VOCAB), tgt.view(-1), ignore_index=-100, reduction="sum")


def main():
    ap = argparse.ArgumentParser()
    for name, kind, value in [("epochs", int, 9), ("rows", int, 8), ("accum", int, 2), ("lr", float, 6e-3),
                              ("seed", int, 0), ("save-dir", str, "lm_out")]:
        ap.add_argument("--" + name, type=kind, default=value)
    args = ap.parse_args()
    torch.manual_seed(args.seed)
    train_docs = make_docs(1400, np.random.default_rng(1))
    val_docs = make_docs(200, np.random.default_rng(2))
    val = pack(val_docs, range(len(val_docs)), 96)

    model = LM()
    decay = [p for p in model.parameters() if p.ndim >= 2]
    plain = [p for p in model.parameters() if p.ndim < 2]
    opt = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}],
                            lr=args.lr, betas=(0.9, 0.95))
    total, warmup = args.epochs * 25, 15
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(
        (s + 1) / warmup, 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * min(1.0, s / total)))))
    step = 0
    for epoch in range(args.epochs):
        data = pack(train_docs, torch.randperm(len(train_docs)).tolist(), 96)
        rows = torch.randperm(len(data[0]))
        micro = [tuple(t[idx] for t in data) for idx in rows.split(args.rows)]
        for start in range(0, len(micro), args.accum):
            group = micro[start:start + args.accum]
            n_tok = sum((m[1] != -100).sum().item() for m in group)
            opt.zero_grad()
            acc = 0.0
            for m in group:
                loss = loss_sum(model, m) / n_tok
                loss.backward()
                acc += loss.item()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            if step % 20 == 0:
                print(f"step {step} loss {acc:.4f} lr {sched.get_last_lr()[0]:.5f}", flush=True)
            step += 1
        model.eval()
        with torch.no_grad():
            nll = loss_sum(model, val).item() / (val[1] != -100).sum().item()
        model.train()
        print(f"epoch {epoch} val loss {nll:.4f} ppl {math.exp(nll):.3f}")
    os.makedirs(args.save_dir, exist_ok=True)
    torch.save({"model": model.state_dict(), "step": step}, os.path.join(args.save_dir, "lm.pt"))


if __name__ == "__main__":
    main()
