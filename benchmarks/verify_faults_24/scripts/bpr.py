"""Implicit-feedback recommender: dot product + biases, popularity-smoothed negatives, HR@10 / NDCG@10."""
import argparse
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

USERS, ITEMS, NEG = 300, 240, 4


def interactions(seed=8):
    rng = np.random.default_rng(seed)
    u, v = rng.normal(0, 1, (USERS, 6)), rng.normal(0, 1, (ITEMS, 6))
    pop = rng.normal(0, 1.0, ITEMS)
    logits = 1.0 * u @ v.T + pop
    seen = np.zeros((USERS, ITEMS), dtype=bool)
    pairs, held = [], np.zeros(USERS, dtype=np.int64)
    for i in range(USERS):
        p = np.exp(logits[i] - logits[i].max())
        n = int(np.clip(rng.lognormal(2.9, 0.7), 8, 80))
        items = rng.choice(ITEMS, n, replace=False, p=p / p.sum())
        held[i] = items[rng.integers(n)]
        for j in items:
            if j != held[i]:
                seen[i, j] = True
                pairs.append((i, j))
    return np.array(pairs), torch.from_numpy(seen), torch.from_numpy(held)


class Recommender(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.user, self.item = nn.Embedding(USERS, dim), nn.Embedding(ITEMS, dim)
        self.bias = nn.Embedding(ITEMS, 1)
        nn.init.normal_(self.user.weight, std=0.1)
        nn.init.normal_(self.item.weight, std=0.1)
        nn.init.zeros_(self.bias.weight)

    def forward(self, u, i):
        return (self.user(u).unsqueeze(1) * self.item(i)).sum(-1) + self.bias(i).squeeze(-1)


def sample_negatives(users, probs, seen):
    """Popularity^0.75 draws; those the user has interacted with are drawn again."""
    neg = torch.multinomial(probs, len(users) * NEG, replacement=True).view(len(users), NEG)
    for _ in range(5):
        clash = seen[users.unsqueeze(1), neg]
        if not clash.any():
            break
        neg[clash] = torch.multinomial(probs, int(clash.sum()), replacement=True)
    return neg


@torch.no_grad()
def evaluate(model, seen, held, bs=64):
    hr = ndcg = 0.0
    for s in range(0, USERS, bs):
        users = torch.arange(s, min(s + bs, USERS))
        scores = model(users, torch.arange(ITEMS).expand(len(users), -1))
        scores = scores.masked_fill(seen[users], -1e9)
        rank = (scores > scores.gather(1, held[users].unsqueeze(1))).sum(1)
        hit = rank < 10
        hr += hit.sum().item()
        ndcg += (hit / torch.log2(rank.float() + 2)).sum().item()
    return hr / USERS, ndcg / USERS


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=8)
    ap.add_argument("--batch", type=int, default=128)
    ap.add_argument("--lr", type=float, default=0.01)
    ap.add_argument("--l2", type=float, default=0.08)
    ap.add_argument("--seed", type=int, default=42)
    ap.add_argument("--save-dir", default=".")
    args = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    pairs, seen, held = interactions()
    pairs = torch.from_numpy(pairs)
    counts = torch.bincount(pairs[:, 1], minlength=ITEMS).float()
    probs = (counts + 1).pow(0.75)
    model = Recommender()
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        order = torch.randperm(len(pairs))
        total = 0.0
        for k in range(0, len(order), args.batch):
            batch = pairs[order[k:k + args.batch]]
            users, pos = batch[:, 0], batch[:, 1]
            neg = sample_negatives(users, probs, seen)
            sp = model(users, pos.unsqueeze(1))
            sn = model(users, neg)
            loss = F.softplus(-sp).mean() + F.softplus(sn).sum(1).mean()
            reg = model.user(users).pow(2).sum(1).mean() + model.item(pos).pow(2).sum(1).mean()
            opt.zero_grad()
            (loss + args.l2 * reg).backward()
            opt.step()
            total += loss.item() * len(batch)
        if epoch % 2 == 1:
            hr, ndcg = evaluate(model, seen, held)
            print(f"epoch {epoch} loss {total / len(pairs):.4f} hr@10 {hr:.4f} ndcg@10 {ndcg:.4f}")
    os.makedirs(args.save_dir, exist_ok=True)
    torch.save(model.state_dict(), os.path.join(args.save_dir, f"rec_{math.floor(args.lr * 1e4)}.pt"))


if __name__ == "__main__":
    main()
