#!/usr/bin/env python3
"""Two-tower shop ranking with sampled negatives (BPR + popularity correction).

    python rank.py fit settings.json
    python rank.py fit settings.json --epochs 10
"""
import json
import logging
import sys
import time
from collections import defaultdict
from typing import Dict, List, NamedTuple, Tuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(format="%(message)s", level=logging.INFO, stream=sys.stdout)
log = logging.getLogger("rank")


class Event(NamedTuple):
    user: int
    item: int
    price: float
    history: List[int]


def simulate(cfg) -> Tuple[List[Event], List[Event], np.ndarray]:
    rng = np.random.RandomState(cfg["seed"])
    taste = rng.randn(cfg["users"], 6)
    traits = rng.randn(cfg["items"], 6)
    pop = rng.zipf(1.6, cfg["items"]).clip(max=200).astype(np.float64)
    price = np.exp(rng.randn(cfg["items"]))
    train, test = [], []
    for u in range(cfg["users"]):
        w = np.exp(traits @ taste[u] * 0.9) * pop ** 0.5
        seq = rng.choice(cfg["items"], size=rng.randint(8, 24), replace=False, p=w / w.sum())
        for k in range(1, len(seq)):
            ev = Event(u, int(seq[k]), float(price[seq[k]]), [int(i) + 1 for i in seq[max(0, k - cfg["hist_len"]):k]])
            (test if k == len(seq) - 1 else train).append(ev)
    return train, test, price


class EventSet(Dataset):
    """Yields (user, padded history, positive, negatives); negatives are resampled at every access."""

    def __init__(self, events: List[Event], cfg, n_items: int):
        self.events, self.cfg, self.n_items = events, cfg, n_items
        self.seen: Dict[int, set] = defaultdict(set)
        for e in events:
            self.seen[e.user].add(e.item)
        self.neg_rng = np.random.RandomState(cfg["seed"] + 1)     # one stream for the run

    def __len__(self):
        return len(self.events)

    def _negative(self, user: int) -> int:
        while True:
            j = self.neg_rng.randint(self.n_items)
            if j not in self.seen[user]:
                return j

    def __getitem__(self, i):
        e = self.events[i]
        hist = torch.zeros(self.cfg["hist_len"], dtype=torch.long)
        for p, it in enumerate(e.history):
            hist[p] = it
        negs = [self._negative(e.user) for _ in range(self.cfg["neg_per_pos"])]
        return {
            "user": torch.tensor(e.user),
            "hist": hist,
            "pos": torch.tensor(e.item),
            "neg": torch.tensor(negs),
        }


class TwoTower(nn.Module):
    def __init__(self, cfg, price: np.ndarray):
        super().__init__()
        d = cfg["dim"]
        self.item = nn.Embedding(cfg["items"] + 1, d, padding_idx=0, sparse=False)
        self.user = nn.Embedding(cfg["users"], d)
        self.pos_w = nn.Parameter(torch.zeros(cfg["hist_len"]))
        self.mlp = nn.Sequential(nn.Linear(2 * d, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, d))
        self.item_mlp = nn.Sequential(nn.Linear(d + 1, 64), nn.ReLU(), nn.Linear(64, d))
        self.price = torch.log(torch.tensor(price, dtype=torch.float32))
        nn.init.normal_(self.item.weight, std=0.05)
        nn.init.normal_(self.user.weight, std=0.05)

    def user_vec(self, user, hist):
        h = self.item(hist)
        w = self.pos_w.expand(hist.shape).masked_fill(hist == 0, -1e9).softmax(1)
        return self.mlp(torch.cat([self.user(user), (w.unsqueeze(-1) * h).sum(1)], dim=-1))

    def item_vec(self, ids):
        price = self.price.to(ids.device)[ids].unsqueeze(-1)
        return self.item_mlp(torch.cat([self.item(ids + 1), price], dim=-1))

    def forward(self, batch):
        u = self.user_vec(batch["user"], batch["hist"])
        pos = (u * self.item_vec(batch["pos"])).sum(-1)
        neg = torch.bmm(self.item_vec(batch["neg"]), u.unsqueeze(-1)).squeeze(-1)
        return pos, neg


def evaluate(model, test: List[Event], train_set: EventSet, cfg, device) -> Dict[str, float]:
    """Full ranking against all items that the user has not bought."""
    model.eval()
    hits, ndcg = 0.0, 0.0
    for e in test:
        with torch.no_grad():
            hist = torch.zeros(1, cfg["hist_len"], dtype=torch.long)
            hist[0, :len(e.history)] = torch.tensor(e.history)
            u = model.user_vec(torch.tensor([e.user]).to(device), hist.to(device))
            items = model.item_vec(torch.arange(cfg["items"]).to(device))
            scores = (items @ u[0]).cpu().numpy()
        scores[list(train_set.seen[e.user])] = -np.inf
        top = np.argpartition(-scores, cfg["topk"])[:cfg["topk"]]
        top = top[np.argsort(-scores[top])]
        where = np.flatnonzero(top == e.item)
        if len(where):
            hits += 1
            ndcg += 1 / np.log2(where[0] + 2)
    return {"hr": hits / len(test), "ndcg": ndcg / len(test)}


def fit(cfg):
    np.random.seed(cfg["seed"])
    torch.manual_seed(cfg["seed"])
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train, test, price = simulate(cfg)
    train_set = EventSet(train, cfg, cfg["items"])
    loader = DataLoader(train_set, batch_size=cfg["batch_size"], shuffle=True)
    model = TwoTower(cfg, price).to(device)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=cfg["lr"] * 4)
    pop_count = torch.zeros(cfg["items"])
    for e in train:
        pop_count[e.item] += 1
    log_q = torch.log(pop_count + 1).to(device)
    log.info("%d train events, %d test users, device %s", len(train), len(test), device.type)

    best = 0.0
    for epoch in range(cfg["epochs"]):
        t0 = time.perf_counter()
        model.train()
        epoch_loss, margin, n = 0.0, 0.0, 0
        for batch in loader:
            batch = {k: v.to(device) for k, v in batch.items()}
            pos, neg = model(batch)
            pos = pos - 0.1 * log_q[batch["pos"]]
            neg = neg - 0.1 * log_q[batch["neg"]]
            loss = -F.logsigmoid(pos.unsqueeze(1) - neg).mean()
            reg = cfg["l2"] * sum(p.pow(2).sum() for p in model.parameters())
            optimizer.zero_grad()
            (loss + reg).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), cfg["clip"])
            optimizer.step()
            epoch_loss += loss.item() * len(pos)
            margin += (pos.unsqueeze(1) - neg).mean().detach().cpu().numpy() * len(pos)
            n += len(pos)
        took = time.perf_counter() - t0
        print("%.0f events/s" % (n / took), file=sys.stderr)
        res = evaluate(model, test, train_set, cfg, device)
        log.info("epoch %d  bpr %.5f  margin %.4f  HR@%d %.4f  NDCG %.4f",
                 epoch, epoch_loss / n, margin / n, cfg["topk"], res["hr"], res["ndcg"])
        if res["hr"] >= best:
            best = res["hr"]
            torch.save({"state": model.state_dict(), "cfg": cfg}, "ranker.pt")
    log.info("best HR %.4f", best)


def main(argv):
    if len(argv) < 3 or argv[1] != "fit":
        sys.exit(__doc__)
    with open(argv[2]) as f:
        cfg = json.load(f)
    for key, val in zip(argv[3::2], argv[4::2]):
        cfg[key.lstrip("-")] = json.loads(val)
    fit(cfg)


if __name__ == "__main__":
    main(sys.argv)
