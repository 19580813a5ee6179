"""Teaches a small language model which of two replies is liked: plain training first, then low-rank adapters by direct preference."""
import argparse
import math
import random

import torch
import torch.nn.functional as F
from torch import nn

WORDS, PAD, ASK = 40, 0, 1
LONG = 20


def reply(prompt, rng, good):
    step = prompt[1] - prompt[0]
    length = rng.randint(3, 9)
    out, last = [], prompt[-1]
    for _ in range(length):
        last = 2 + (last - 2 + step) % (WORDS - 2)
        out.append(last if rng.random() < (0.95 if good else 0.6) else rng.randrange(2, WORDS))
    return out


def pairs(count, seed):
    """Prompt and reply in one row, for the liked and for the other reply, and which places are of the reply."""
    rng = random.Random(seed)
    rows, places = torch.full((count, 2, LONG), PAD), torch.zeros(count, 2, LONG, dtype=torch.bool)
    for i in range(count):
        start, step = rng.randrange(2, WORDS), rng.randint(1, 5)
        prompt = [2 + (start - 2 + k * step) % (WORDS - 2) for k in range(rng.randint(3, 8))]
        both = [reply(prompt, rng, True), reply(prompt, rng, False)]
        if rng.random() < 0.1:
            both.reverse()
        for j, answer in enumerate(both):
            text = prompt + [ASK] + answer
            rows[i, j, : len(text)] = torch.tensor(text)
            places[i, j, len(prompt) + 1 : len(text)] = True
    return rows, places


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 3 * width), nn.Linear(3 * width, width)

    def forward(self, x):
        b, t, w = x.shape
        h = self.before(x)
        q, k, v = (f(h).view(b, t, self.heads, -1).transpose(1, 2) for f in (self.query, self.key, self.value))
        scores = q @ k.transpose(-2, -1) / math.sqrt(w // self.heads)
        later = torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1)
        scores = scores.masked_fill(later, -math.inf)
        h = (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, w)
        x = x + self.out(h)
        return x + self.down(F.gelu(self.up(self.between(x))))


class Talker(nn.Module):
    def __init__(self, width=40, heads=4, depth=2):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(LONG, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, WORDS)

    def forward(self, rows):
        x = self.words(rows) + self.places(torch.arange(rows.shape[1], device=rows.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Adapter(nn.Module):
    def __init__(self, base, rank, alpha, drop):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.low = nn.Parameter(torch.randn(rank, base.in_features) / math.sqrt(base.in_features))
        self.high = nn.Parameter(torch.zeros(base.out_features, rank))
        self.scale, self.on, self.drop = alpha / rank, True, nn.Dropout(drop)

    def forward(self, x):
        out = self.base(x)
        if self.on:
            out = out + self.scale * F.linear(F.linear(self.drop(x), self.low), self.high)
        return out

    @torch.no_grad()
    def merged(self):
        self.base.weight += self.scale * self.high @ self.low
        return self.base


def adapters(model):
    return [m for m in model.modules() if isinstance(m, Adapter)]


def logs(model, rows, places):
    """Logarithm of the chance of each reply."""
    out = model(rows[:, :-1]).log_softmax(-1)
    each = out.gather(-1, rows[:, 1:, None]).squeeze(-1)
    return (each * places[:, 1:]).sum(-1)


@torch.no_grad()
def reference(model, rows, places):
    model.eval()
    for m in adapters(model):
        m.on = False
    found = logs(model, rows[:, 0], places[:, 0]), logs(model, rows[:, 1], places[:, 1])
    for m in adapters(model):
        m.on = True
    model.train()
    return found


def plain(model, rows, args):
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(args.plain):
        x = rows[torch.randint(len(rows), (48,)), torch.randint(2, (48,))]
        loss = F.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten(), ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 60 == 59:
            print(f"plain {step + 1} loss {loss.item():.4f}")


@torch.no_grad()
def judge(model, rows, places, held):
    model.eval()
    right, margin, count = 0, 0.0, 0
    for at in torch.arange(len(rows)).split(64):
        liked = logs(model, rows[at, 0], places[at, 0]) - held[0][at]
        other = logs(model, rows[at, 1], places[at, 1]) - held[1][at]
        right += (liked > other).sum().item()
        margin += (liked - other).sum().item()
        count += len(at)
    return right / count, margin / count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--plain", type=int, default=180)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=28)
    parser.add_argument("--beta", type=float, default=0.2)
    parser.add_argument("--smooth", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    rows, places = pairs(500, 1)
    held_rows, held_places = pairs(150, 2)
    model = Talker()
    plain(model, rows, args)
    model.requires_grad_(False)
    for block in model.blocks:
        for name in ("query", "value", "out"):
            setattr(block, name, Adapter(getattr(block, name), rank=4, alpha=16, drop=0.1))
    small = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(small, lr=4e-3, weight_decay=0.01)
    updates = args.epochs * math.ceil(len(rows) / args.batch)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: min(1.0, (k + 1) / 8) * 0.5 * (1 + math.cos(math.pi * k / updates)))
    held = reference(model, held_rows, held_places)
    for epoch in range(args.epochs):
        model.train()
        total, won = 0.0, 0.0
        for at in torch.randperm(len(rows)).split(args.batch):
            x, where = rows[at], places[at]
            base_liked, base_other = reference(model, x, where)
            liked = logs(model, x[:, 0], where[:, 0])
            other = logs(model, x[:, 1], where[:, 1])
            margin = args.beta * ((liked - base_liked) - (other - base_other))
            loss = -((1 - args.smooth) * F.logsigmoid(margin) + args.smooth * F.logsigmoid(-margin)).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(small, 1.0)
            optimizer.step()
            scheduler.step()
            total += loss.item() * len(at)
            won += (margin > 0).sum().item()
        right, by = judge(model, held_rows, held_places, held)
        print(f"epoch {epoch + 1} loss {total / len(rows):.4f} won {won / len(rows):.4f} held {right:.4f} margin {by:.4f}")
    torch.save({k: v for k, v in model.state_dict().items() if k.endswith((".low", ".high"))}, "adapters.pt")
    for block in model.blocks:
        for name in ("query", "value", "out"):
            setattr(block, name, getattr(block, name).merged())
    right, by = judge(model, held_rows, held_places, held)
    print(f"merged held {right:.4f} margin {by:.4f}")
    torch.save(model.state_dict(), "merged.pt")


if __name__ == "__main__":
    main()
