"""A small transformer adds numbers digit by digit: longer numbers epoch by epoch, rows filled from the left, answers written greedily for the judgement."""
import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn

BASE, PLUS, IS, PAD = 4, 4, 5, 6
TOKENS, MOST = 7, 3
LENGTH = 3 * MOST + 2


def sums(count, longest, seed):
    """Rows "pads a + b = c", the sum digit by digit without carrying, each row as far right as it goes."""
    g = torch.Generator().manual_seed(seed)
    rows = torch.full((count, LENGTH), PAD)
    sizes = torch.randint(1, longest + 1, (count,), generator=g)
    for i, n in enumerate(sizes.tolist()):
        a, b = torch.randint(BASE, (2, n), generator=g)
        c = (a + b) % BASE
        text = torch.cat([a, torch.tensor([PLUS]), b, torch.tensor([IS]), c])
        rows[i, LENGTH - len(text) :] = text
    return rows, sizes


def answers(rows):
    """Places of the answer."""
    return (rows == IS).cumsum(1).bool() & (rows != IS)


def allowed(rows):
    """Which place may look at which: no later one, no pad but itself."""
    t = rows.shape[1]
    causal = torch.ones(t, t, dtype=torch.bool, device=rows.device).tril()
    itself = torch.eye(t, dtype=torch.bool, device=rows.device)
    return ((causal & (rows != PAD)[:, None]) | itself)[:, None]


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.all, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, mask):
        b, t, w = x.shape
        q, k, v = self.all(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-2, -1)) * (w // self.heads) ** -0.5
        scores = scores.masked_fill(~mask, -math.inf)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, w))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.look, self.first, self.second = Attention(width, heads), nn.LayerNorm(width), nn.LayerNorm(width)
        self.think = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x, mask):
        x = x + self.look(self.first(x), mask)
        return x + self.think(self.second(x))


class Adder(nn.Module):
    def __init__(self, width=48, heads=4, depth=2):
        super().__init__()
        self.tokens, self.places = nn.Embedding(TOKENS, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, TOKENS)

    def forward(self, rows):
        mask = allowed(rows)
        places = ((rows != PAD).cumsum(1) - 1).clamp(min=0)
        x = self.tokens(rows) + self.places(places)
        for block in self.blocks:
            x = block(x, mask)
        return self.head(self.norm(x))


@torch.no_grad()
def write(model, rows, size):
    """Writes ``size`` digits after each row."""
    for _ in range(size):
        token = model(rows)[:, -1, :BASE].argmax(-1)
        rows = torch.cat([rows, token[:, None]], 1)
    return rows[:, -size:]


@torch.no_grad()
def judge(model, rows, sizes):
    model.eval()
    total, digits, right = 0.0, 0, {}
    for n in range(1, MOST + 1):
        part = rows[sizes == n]
        known = answers(part)[:, 1:]
        out = model(part[:, :-1])
        total += F.cross_entropy(out[known], part[:, 1:][known], reduction="sum").item()
        digits += known.sum().item()
        wrote = write(model, part[:, :-n], n)
        right[n] = (wrote == part[:, -n:]).all(1).float().mean().item()
    model.train()
    return total / digits, right


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=7)
    parser.add_argument("--rows", type=int, default=1500)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--lr", type=float, default=6e-3)
    args = parser.parse_args()
    torch.manual_seed(11)
    held, sizes = sums(240, MOST, 1)
    model = Adder()
    flat = [p for p in model.parameters() if p.dim() < 2]
    deep = [p for p in model.parameters() if p.dim() >= 2]
    optimizer = torch.optim.AdamW([{"params": deep, "weight_decay": 0.1}, {"params": flat, "weight_decay": 0.0}], lr=args.lr)
    batches = math.ceil(args.rows / args.batch)
    updates = args.epochs * math.ceil(batches / args.accumulate)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: min((k + 1) / 12, 1 - 0.9 * k / updates))
    best, kept = -1.0, None
    for epoch in range(args.epochs):
        longest = min(MOST, 1 + epoch // 2)
        train, _ = sums(args.rows, longest, 100 + epoch)
        parts = train[torch.randperm(len(train))].split(args.batch)
        total, digits = 0.0, 0
        for start in range(0, len(parts), args.accumulate):
            group = parts[start : start + args.accumulate]
            count = sum(answers(x).sum() for x in group)
            optimizer.zero_grad()
            for x in group:
                known = answers(x)[:, 1:]
                out = model(x[:, :-1])
                loss = F.cross_entropy(out[known], x[:, 1:][known], reduction="sum") / count
                loss.backward()
                total += loss.item() * count.item()
            digits += count.item()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
        lost, right = judge(model, held, sizes)
        score = sum(right.values()) / MOST
        print(f"epoch {epoch + 1} up to {longest} loss {total / digits:.4f} held {lost:.4f} right {' '.join(f'{right[n]:.3f}' for n in right)}")
        if score > best:
            best, kept = score, {k: v.clone() for k, v in model.state_dict().items()}
    torch.save({"last": model.state_dict(), "optimizer": optimizer.state_dict()}, "last.pt")
    model.load_state_dict(kept)
    lost, right = judge(model, held, sizes)
    print(f"best {best:.4f} held {lost:.4f}")
    torch.save(model.state_dict(), "best.pt")


if __name__ == "__main__":
    main()
