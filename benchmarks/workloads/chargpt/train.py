"""A small transformer that learns to continue a text, letter by letter."""

import argparse
import math
import random

import torch
import torch.nn.functional as F
from torch import nn

WORDS = (
    "the quick brown fox jumps over a lazy dog while seven wizards pack my box with jugs".split()
)


class Attention(nn.Module):
    def __init__(self, width, heads, context):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        mask = torch.tril(torch.ones(context, context)).view(1, 1, context, context)
        self.register_buffer("mask", mask)

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.qkv(x).split(C, dim=2)
        q = q.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        k = k.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        v = v.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.mask[:, :, :T, :T] == 0, float("-inf"))
        att = F.softmax(att, dim=-1)
        y = att @ v
        return self.out(y.transpose(1, 2).contiguous().view(B, T, C))


class Block(nn.Module):
    def __init__(self, width, heads, context):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads, context)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, letters, width, heads, layers, context):
        super().__init__()
        self.letters = nn.Embedding(letters, width)
        self.places = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*[Block(width, heads, context) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, letters, bias=False)

    def forward(self, index):
        places = torch.arange(index.size(1), device=index.device)
        x = self.blocks(self.letters(index) + self.places(places))
        return self.head(self.norm(x))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--tiny", action="store_true", help="short texts and few steps")
    args = parser.parse_args()
    if args.tiny:
        args.context, args.steps = 64, 40

    torch.manual_seed(0)
    random.seed(0)
    text = " ".join(random.choice(WORDS) for _ in range(20_000))
    letters = sorted(set(text))
    code = {letter: n for n, letter in enumerate(letters)}
    data = torch.tensor([code[letter] for letter in text])

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = GPT(len(letters), width=96, heads=6, layers=3, context=args.context).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model.train()
    for step in range(args.steps):
        starts = torch.randint(len(data) - args.context - 1, (args.batch,))
        x = torch.stack([data[s : s + args.context] for s in starts]).to(device)
        y = torch.stack([data[s + 1 : s + 1 + args.context] for s in starts]).to(device)
        logits = model(x)
        loss = F.cross_entropy(logits.view(-1, logits.size(-1)), y.view(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step}: loss {loss.item():.4f}")
    torch.save(model.state_dict(), "chargpt.pt")


if __name__ == "__main__":
    main()
