"""A small language model of letters whose layers are mixtures of experts: a noisy choice of two, a loss that balances them."""
import argparse
import json
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

LETTERS = "abcdefghijklmnopqrstuvwxyz ."


def text(length, seed):
    rng = np.random.default_rng(seed)
    words = ["".join(rng.choice(list(LETTERS[:26]), rng.integers(2, 7))) for _ in range(60)]
    out = []
    while sum(map(len, out)) < length:
        k = int(rng.zipf(1.4)) % len(words)
        out.append(words[k] + (". " if rng.random() < 0.15 else " "))
    return torch.tensor([LETTERS.index(c) for c in "".join(out)[:length]])


class Experts(nn.Module):
    def __init__(self, width, experts, chosen=2):
        super().__init__()
        self.gate, self.noise, self.chosen = nn.Linear(width, experts, bias=False), nn.Linear(width, experts, bias=False), chosen
        self.up = nn.Parameter(torch.randn(experts, width, 2 * width) / width**0.5)
        self.down = nn.Parameter(torch.randn(experts, 2 * width, width) / (2 * width) ** 0.5)
        self.balance = torch.zeros(())

    def forward(self, x):
        scores = self.gate(x)
        if self.training:
            scores = scores + torch.randn_like(scores) * F.softplus(self.noise(x))
        top, which = scores.topk(self.chosen, -1)
        weight = torch.zeros_like(scores).scatter(-1, which, top.softmax(-1))
        load, share = (weight > 0).float().mean((0, 1)), scores.softmax(-1).mean((0, 1))
        self.balance = len(load) * (load * share).sum()
        hidden = F.gelu(torch.einsum("bti,eio->bteo", x, self.up))
        return torch.einsum("bteo,eoi,bte->bti", hidden, self.down, weight)


class Block(nn.Module):
    def __init__(self, width, heads, experts):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.ask, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.experts, self.drop = Experts(width, experts), nn.Dropout(0.1)

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = (part.view(b, t, self.heads, -1).transpose(1, 2) for part in self.ask(self.norms[0](x)).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.out(mixed.transpose(1, 2).reshape(b, t, w)))
        return x + self.drop(self.experts(self.norms[1](x)))


class Model(nn.Module):
    def __init__(self, width=32, depth=2, heads=2, experts=4, window=32):
        super().__init__()
        self.letters, self.places = nn.Embedding(len(LETTERS), width), nn.Embedding(window, width)
        self.blocks = nn.ModuleList(Block(width, heads, experts) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, len(LETTERS), bias=False)
        self.head.weight = self.letters.weight

    def forward(self, x):
        h = self.letters(x) + self.places(torch.arange(x.shape[1]))
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h)), sum(block.experts.balance for block in self.blocks)


def batch_of(data, rng, args):
    at = rng.integers(0, len(data) - args.window - 1, args.batch)
    rows = torch.stack([data[i : i + args.window + 1] for i in at])
    return rows[:, :-1], rows[:, 1:]


@torch.no_grad()
def perplexity(model, data, args):
    model.eval()
    total, count = 0.0, 0
    for start in range(0, len(data) - 1, args.window):
        x, y = data[None, start : start + args.window], data[None, start + 1 : start + args.window + 1]
        x = x[:, : y.shape[1]]
        logits, _ = model(x)
        total += F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="sum").item()
        count += y.numel()
    model.train()
    return math.exp(total / count)


def rate(n, args):
    if n < args.warmup:
        return args.lr * (n + 1) / args.warmup
    share = (n - args.warmup) / (args.updates - args.warmup)
    return args.lr * (0.1 + 0.45 * (1 + math.cos(math.pi * share)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--updates", type=int, default=72)
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--batch", type=int, default=12)
    parser.add_argument("--window", type=int, default=32)
    parser.add_argument("--lr", type=float, default=6e-3)
    parser.add_argument("--warmup", type=int, default=8)
    parser.add_argument("--balance", type=float, default=0.02)
    parser.add_argument("--every", type=int, default=12)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    train, held = text(9000, 1), text(1000, 1)[500:]
    model = Model()
    matrices = [p for n, p in model.named_parameters() if p.dim() > 1 and "letters" not in n]
    others = [p for n, p in model.named_parameters() if p.dim() < 2 or "letters" in n]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}], lr=args.lr, betas=(0.9, 0.95))
    best, log = math.inf, []
    for update in range(args.updates):
        for group in optimizer.param_groups:
            group["lr"] = rate(update, args)
        optimizer.zero_grad()
        seen = 0.0
        for _ in range(args.accumulate):
            x, y = batch_of(train, rng, args)
            logits, balance = model(x)
            loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
            ((loss + args.balance * balance) / args.accumulate).backward()
            seen += loss.item() / args.accumulate
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        log.append({"update": update, "loss": seen, "norm": float(norm)})
        if (update + 1) % args.every == 0:
            found = perplexity(model, held, args)
            print(f"update {update + 1} loss {np.mean([one['loss'] for one in log[-args.every:]]):.4f} perplexity {found:.4f}")
            if found < best:
                best = found
                torch.save({"model": model.state_dict(), "update": update + 1, "perplexity": found}, "experts.pt")
    with open("experts.json", "w") as file:
        json.dump(log, file)
    print(f"best {best:.4f}")


if __name__ == "__main__":
    main()
