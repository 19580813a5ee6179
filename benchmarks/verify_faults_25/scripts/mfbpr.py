# Implicit-feedback recommender: matrix factorisation, BPR loss, popularity-smoothed negatives.
import math
import os
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SEED = 11
N_USERS, N_ITEMS, DIM = 400, 500, 16
EPOCHS, BATCH, LR, REG = 18, 128, 0.1, 5e-3
OUT = sys.argv[1] if len(sys.argv) > 1 else "runs"


def make_interactions():
    """Draws, for each user, a few dozen distinct items by taste times popularity."""
    rng = np.random.default_rng(5)
    u = rng.normal(size=(N_USERS, 4))
    v = rng.normal(size=(N_ITEMS, 4))
    pop = rng.permutation(1.0 / np.arange(5, N_ITEMS + 5) ** 0.7)
    train, test = [], []
    for i in range(N_USERS):
        p = pop * np.exp(1.3 * (v @ u[i]))
        n = int(rng.integers(14, 40))
        items = rng.choice(N_ITEMS, size=n, replace=False, p=p / p.sum())
        rng.shuffle(items)
        train += [(i, int(j)) for j in items[2:]]
        test += [(i, int(j)) for j in items[:2]]
    return train, test


class BPRData(Dataset):
    """(user, positive item, negative item); the negative follows count**0.75, never a known positive."""

    def __init__(self, pairs, seed):
        self.pairs = pairs
        self.seen = [set() for _ in range(N_USERS)]
        counts = np.zeros(N_ITEMS)
        for u, i in pairs:
            self.seen[u].add(i)
            counts[i] += 1
        self.prob = (counts + 1) ** 0.75
        self.prob /= self.prob.sum()
        self.cdf = np.cumsum(self.prob)
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, k):
        u, i = self.pairs[k]
        while True:
            j = min(int(np.searchsorted(self.cdf, self.rng.random(), side="right")), N_ITEMS - 1)
            if j not in self.seen[u]:
                break
        return u, i, j


class MF(nn.Module):
    def __init__(self):
        super().__init__()
        self.user = nn.Embedding(N_USERS, DIM)
        self.item = nn.Embedding(N_ITEMS, DIM)
        self.bias = nn.Embedding(N_ITEMS, 1)
        nn.init.normal_(self.user.weight, std=0.1)
        nn.init.normal_(self.item.weight, std=0.1)
        nn.init.zeros_(self.bias.weight)

    def score(self, u, i):
        return (self.user(u) * self.item(i)).sum(-1) + self.bias(i).squeeze(-1)

    def reg(self, u, i, j):
        return (self.user(u).pow(2).sum() + self.item(i).pow(2).sum() + self.item(j).pow(2).sum()) / len(u)


def evaluate(model, seen, test, k=10):
    """Hit rate and NDCG at k over all items the user has not met in training."""
    model.eval()
    hits, ndcg = 0, 0.0
    with torch.no_grad():
        for u, target in test:
            s = model.score(torch.full((N_ITEMS,), u), torch.arange(N_ITEMS))
            s[list(seen[u])] = -float("inf")
            top = s.topk(k).indices.tolist()
            if target in top:
                hits += 1
                ndcg += 1 / math.log2(top.index(target) + 2)
    model.train()
    return hits / len(test), ndcg / len(test)


torch.manual_seed(SEED)
np.random.seed(SEED)
train, test = make_interactions()
data = BPRData(train, SEED)
loader = DataLoader(data, batch_size=BATCH, shuffle=True)
model = MF()
opt = torch.optim.Adagrad(model.parameters(), lr=LR)
print(f"{len(train)} training pairs, {len(test)} test pairs")

for epoch in range(EPOCHS):
    tot, correct, n = 0.0, 0, 0
    for step, (u, i, j) in enumerate(loader):
        pos = model.score(u, i)
        neg = model.score(u, j)
        loss = -F.logsigmoid(pos - neg).mean() + REG * model.reg(u, i, j)
        opt.zero_grad()
        loss.backward()
        opt.step()
        tot += loss.item() * len(u)
        correct += (pos > neg).sum().item()
        n += len(u)
    msg = f"epoch {epoch:2d} loss {tot / n:.4f} pair-acc {correct / n:.4f}"
    if epoch % 3 == 2:
        hr, nd = evaluate(model, data.seen, test)
        msg += f" HR@10 {hr:.4f} NDCG@10 {nd:.4f}"
    print(msg, flush=True)

os.makedirs(OUT, exist_ok=True)
torch.save(model.state_dict(), os.path.join(OUT, "mf.pth"))
