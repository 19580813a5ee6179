"""Small character-level GPT on made-up sentences.

python novelist.py --steps 60 --accum 3
"""
import argparse
import math
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=70)
parser.add_argument("--accum", type=int, default=3)
parser.add_argument("--batch_size", type=int, default=12)
parser.add_argument("--block_size", type=int, default=40)
parser.add_argument("--n_embd", type=int, default=48)
parser.add_argument("--n_head", type=int, default=4)
parser.add_argument("--n_layer", type=int, default=2)
parser.add_argument("--dropout", type=float, default=0.15)
parser.add_argument("--max_lr", type=float, default=6e-3)
parser.add_argument("--min_lr", type=float, default=3e-4)
parser.add_argument("--warmup", type=int, default=12)
parser.add_argument("--weight_decay", type=float, default=0.3)
parser.add_argument("--grad_clip", type=float, default=0.5)
parser.add_argument("--eval_every", type=int, default=14)
parser.add_argument("--eval_iters", type=int, default=6)
parser.add_argument("--seed", type=int, default=1337)
args = parser.parse_args()

random.seed(args.seed)
np.random.seed(args.seed)
torch.manual_seed(args.seed)

# ---- data
writer = random.Random(3)
who = ["the old fox", "a miller", "his wife", "the crow", "an owl", "her brother"]
does = ["saw", "hid", "sold", "found", "lost", "carried"]
what = ["bread", "a lantern", "three coins", "the key", "a letter"]
where = ["in the barn", "by the river", "at dusk", "near the mill", ""]
text = ""
while len(text) < 30000:
    text += f"{writer.choice(who)} {writer.choice(does)} {writer.choice(what)} {writer.choice(where)}".strip() + ".\n"
chars = sorted(set(text))
stoi = {c: i for i, c in enumerate(chars)}
data = torch.tensor([stoi[c] for c in text], dtype=torch.long)
n = int(0.9 * len(data))
splits = {"train": data[:n], "val": data[n:]}


def get_batch(split):
    source = splits[split]
    ix = torch.randint(len(source) - args.block_size, (args.batch_size,))
    x = torch.stack([source[i : i + args.block_size] for i in ix])
    y = torch.stack([source[i + 1 : i + 1 + args.block_size] for i in ix])
    return x, y


# ---- model
class CausalSelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(args.n_embd, args.n_embd, bias=False)
        self.key = nn.Linear(args.n_embd, args.n_embd, bias=False)
        self.value = nn.Linear(args.n_embd, args.n_embd, bias=False)
        self.proj = nn.Linear(args.n_embd, args.n_embd)
        self.drop = nn.Dropout(args.dropout)
        self.resid = nn.Dropout(args.dropout)
        self.register_buffer("mask", torch.tril(torch.ones(args.block_size, args.block_size)))

    def forward(self, x):
        B, T, C = x.shape
        q = self.query(x).view(B, T, args.n_head, C // args.n_head).transpose(1, 2)
        k = self.key(x).view(B, T, args.n_head, C // args.n_head).transpose(1, 2)
        v = self.value(x).view(B, T, args.n_head, C // args.n_head).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) / math.sqrt(k.size(-1))
        att = att.masked_fill(self.mask[:T, :T] == 0, float("-inf"))
        att = self.drop(F.softmax(att, dim=-1))
        y = (att @ v).transpose(1, 2).contiguous().view(B, T, C)
        return self.resid(self.proj(y))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1 = nn.LayerNorm(args.n_embd)
        self.attn = CausalSelfAttention()
        self.ln2 = nn.LayerNorm(args.n_embd)
        self.mlp = nn.Sequential(
            nn.Linear(args.n_embd, 4 * args.n_embd), nn.GELU(), nn.Linear(4 * args.n_embd, args.n_embd), nn.Dropout(args.dropout)
        )

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self, vocab):
        super().__init__()
        self.tok = nn.Embedding(vocab, args.n_embd)
        self.pos = nn.Embedding(args.block_size, args.n_embd)
        self.blocks = nn.Sequential(*[Block() for _ in range(args.n_layer)])
        self.ln = nn.LayerNorm(args.n_embd)
        self.head = nn.Linear(args.n_embd, vocab, bias=False)
        self.apply(self._init)
        self.head.weight = self.tok.weight

    def _init(self, m):
        if isinstance(m, (nn.Linear, nn.Embedding)):
            nn.init.normal_(m.weight, std=0.05)

    def forward(self, idx):
        x = self.tok(idx) + self.pos(torch.arange(idx.size(1)))
        return self.head(self.ln(self.blocks(x)))


def get_lr(it):
    if it < args.warmup:
        return args.max_lr * (it + 1) / (args.warmup + 1)
    ratio = (it - args.warmup) / (args.steps - args.warmup)
    return args.min_lr + 0.5 * (1.0 + math.cos(math.pi * ratio)) * (args.max_lr - args.min_lr)


model = GPT(len(chars))
print(f"{sum(p.numel() for p in model.parameters()) / 1e3:.1f}K parameters, vocabulary {len(chars)}")
decay = [p for p in model.parameters() if p.dim() >= 2]
rest = [p for p in model.parameters() if p.dim() < 2]
optimizer = torch.optim.AdamW(
    [{"params": decay, "weight_decay": args.weight_decay}, {"params": rest, "weight_decay": 0.0}], lr=args.max_lr, betas=(0.9, 0.95)
)


@torch.no_grad()
def estimate_loss():
    out = {}
    model.eval()
    for split in ("train", "val"):
        losses = torch.zeros(args.eval_iters)
        for k in range(args.eval_iters):
            xb, yb = get_batch(split)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = model(xb)
            losses[k] = F.cross_entropy(logits.float().view(-1, logits.size(-1)), yb.view(-1)).item()
        out[split] = losses.mean().item()
    model.train()
    return out


best = 1e9
t0 = time.time()
for step in range(args.steps):
    lr = get_lr(step)
    for group in optimizer.param_groups:
        group["lr"] = lr
    if step % args.eval_every == 0:
        losses = estimate_loss()
        print(f"step {step}: train loss {losses['train']:.4f}, val loss {losses['val']:.4f}")
        if losses["val"] < best:
            best = losses["val"]
            torch.save({"model": model.state_dict(), "step": step, "val": best}, "novelist.pt")

    optimizer.zero_grad()
    lossf = 0.0
    for micro in range(args.accum):
        xb, yb = get_batch("train")
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(xb)
        loss = F.cross_entropy(logits.float().view(-1, logits.size(-1)), yb.view(-1)) / args.accum
        loss.backward()
        lossf += loss.item()
    norm = nn.utils.clip_grad_norm_(model.parameters(), args.grad_clip)
    optimizer.step()
    if step % 5 == 0:
        dt = time.time() - t0
        print(f"iter {step}: loss {lossf:.4f}, grad norm {norm.item():.4f}, lr {lr:.2e}, time {dt * 1000:.0f}ms")

losses = estimate_loss()
print(f"final: train loss {losses['train']:.4f}, val loss {losses['val']:.4f}, best {min(best, losses['val']):.4f}")
