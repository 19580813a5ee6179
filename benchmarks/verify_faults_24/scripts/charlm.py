"""Character LM on generated 'recipes': length-bucketed micro-batches, token-normalised accumulation."""
import argparse
import math
import os
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

CHARS = "\0^abcdefghijklmnopqrstuvwxyz .,;0123456789"
STOI = {c: i for i, c in enumerate(CHARS)}
VERBS = ["mix", "boil", "fry", "fold", "whisk", "chop"]
NOUNS = ["rice", "eggs", "flour", "onion", "butter", "leeks", "beans"]
TIMES = ["gently", "twice", "until soft", "for 5 min", "for 20 min"]


def make_doc(rng):
    parts = []
    favourite = rng.choice(NOUNS)
    for _ in range(rng.choice([1, 1, 1, 2, 3, 5])):
        noun = favourite if rng.random() < 0.6 else rng.choice(NOUNS)
        verb = VERBS[(NOUNS.index(noun) + rng.choice([0, 0, 1])) % len(VERBS)]
        parts.append(f"{verb} {rng.randint(1, 9)} {noun} {rng.choice(TIMES)}")
    return [STOI[c] for c in "^" + ", ".join(parts) + "."]


def collate(docs):
    width = max(len(d) for d in docs) - 1
    x = torch.zeros(len(docs), width, dtype=torch.long)
    y = torch.full((len(docs), width), -100, dtype=torch.long)
    for i, d in enumerate(docs):
        x[i, :len(d) - 1] = torch.tensor(d[:-1])
        y[i, :len(d) - 1] = torch.tensor(d[1:])
    return x, y


def micro_batches(docs, size, rng):
    """Bucket by length inside big shuffled chunks, so there is little padding; yields forever."""
    while True:
        order = list(range(len(docs)))
        rng.shuffle(order)
        batches = []
        for k in range(0, len(order), size * 16):
            chunk = sorted(order[k:k + size * 16], key=lambda i: len(docs[i]))
            batches += [chunk[j:j + size] for j in range(0, len(chunk), size)]
        rng.shuffle(batches)
        for b in batches:
            yield collate([docs[i] for i in b])


class Block(nn.Module):
    def __init__(self, d, heads, p):
        super().__init__()
        self.heads, self.p = heads, p
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 3 * d), nn.GELU(), nn.Linear(3 * d, d), nn.Dropout(p))

    def attend(self, q, k, v):
        n = q.size(-2)
        att = (q @ k.transpose(-2, -1)) / math.sqrt(q.size(-1))
        att = att.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), float("-inf"))
        att = F.dropout(att.softmax(-1), self.p, self.training)
        return att @ v

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = (t.view(b, n, self.heads, -1).transpose(1, 2) for t in self.qkv(self.ln1(x)).chunk(3, -1))
        x = x + self.proj(self.attend(q, k, v).transpose(1, 2).reshape(b, n, d))
        return x + self.mlp(self.ln2(x))


class CharLM(nn.Module):
    def __init__(self, d=48, layers=2, heads=4, p=0.1, ctx=192):
        super().__init__()
        self.tok, self.pos = nn.Embedding(len(CHARS), d), nn.Embedding(ctx, d)
        self.blocks = nn.ModuleList(Block(d, heads, p) for _ in range(layers))
        self.ln, self.head = nn.LayerNorm(d), nn.Linear(d, len(CHARS))

    def forward(self, x):
        h = self.tok(x) + self.pos.weight[:x.size(1)]
        for blk in self.blocks:
            h = blk(h)
        return self.head(self.ln(h))


@torch.no_grad()
def evaluate(model, docs, bs=16):
    model.eval()
    nll, ntok = 0.0, 0
    docs = sorted(docs, key=len)
    for k in range(0, len(docs), bs):
        x, y = collate(docs[k:k + bs])
        nll += F.cross_entropy(model(x).flatten(0, 1), y.flatten(), ignore_index=-100, reduction="sum").item()
        ntok += (y != -100).sum().item()
    model.train()
    return nll / ntok


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=90)
    ap.add_argument("--accum", type=int, default=4)
    ap.add_argument("--lr", type=float, default=4e-3)
    ap.add_argument("--seed", type=int, default=1337)
    ap.add_argument("--out_dir", default=".")
    args = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    rng = random.Random(args.seed)
    data_rng = random.Random(5)
    train = [make_doc(data_rng) for _ in range(1200)]
    val = [make_doc(data_rng) for _ in range(160)]

    model = CharLM()
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.05)
    warm = 10
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1, (s + 1) / warm) * (
        0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * min(1, max(0, s - warm) / (args.steps - warm))))))
    stream = micro_batches(train, 8, rng)

    for step in range(1, args.steps + 1):
        window = [next(stream) for _ in range(args.accum)]
        total = sum((y != -100).sum() for _, y in window)
        opt.zero_grad()
        step_loss = 0.0
        for x, y in window:
            logits = model(x)
            loss = F.cross_entropy(logits.flatten(0, 1), y.flatten(), ignore_index=-100, reduction="sum") / total
            loss.backward()
            step_loss += loss.item()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 10 == 0:
            print(f"step {step:4d} loss {step_loss:.4f} lr {sched.get_last_lr()[0]:.2e}")
        if step % 30 == 0:
            print(f"step {step:4d} val_loss {evaluate(model, val):.4f}")
    final = evaluate(model, val)
    print(f"final val_loss {final:.4f} ppl {math.exp(final):.3f}")
    os.makedirs(args.out_dir, exist_ok=True)
    torch.save(model.state_dict(), os.path.join(args.out_dir, "charlm.pt"))


if __name__ == "__main__":
    main()
