import numpy as np
import torch
from torch.utils.data import Dataset, get_worker_info


def alias_table(p):
    """Walker's alias method: (prob, alias) for O(1) draws"""
    n = len(p)
    q = np.asarray(p, float) * n / np.sum(p)
    prob, alias = np.ones(n), np.arange(n)
    small, large = [i for i in range(n) if q[i] < 1], [i for i in range(n) if q[i] >= 1]
    while small and large:
        s, l = small.pop(), large.pop()
        prob[s], alias[s] = q[s], l
        q[l] -= 1 - q[s]
        (small if q[l] < 1 else large).append(l)
    return prob, alias


class Events(Dataset):
    """(history, item, negatives); negatives by popularity**.75, rejected if the user has seen them.
    Draws come from self.rng, which is made in the worker at the first item: seed + epoch + worker."""

    def __init__(self, log, n_neg, seed, max_hist=8):
        order = np.lexsort((log['time'], log['user']))
        self.user, self.item = log['user'][order], log['item'][order]
        self.n_items = int(log['n_items'])
        self.hist, self.seen = {}, {}
        self.rows, self.test = [], []
        for k, (u, i) in enumerate(zip(self.user, self.item)):
            h = self.hist.setdefault(u, [])
            last = k + 1 == len(self.user) or self.user[k + 1] != u
            (self.test if last else self.rows).append((u, tuple(h[-max_hist:]), i)) if h else None
            h.append(i)
            if not last:
                self.seen.setdefault(u, set()).add(i)
        self.count = np.bincount([r[2] for r in self.rows], minlength=self.n_items) + 1.
        self.prob, self.alias = alias_table(self.count ** .75)
        self.n_neg, self.seed, self.epoch = n_neg, seed, 0
        self.rng = None

    def set_epoch(self, e):
        self.epoch, self.rng = e, None

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, k):
        if self.rng is None:
            w = get_worker_info()
            self.rng = np.random.RandomState(self.seed + 1000 * self.epoch + (w.id if w else 0))
        u, h, i = self.rows[k]
        neg = []
        while len(neg) < self.n_neg:
            c = self.rng.randint(self.n_items)
            if self.rng.rand() >= self.prob[c]:
                c = self.alias[c]
            if c not in self.seen[u]:
                neg.append(c)
        return u, h, i, neg


def collate(rows):
    """histories are ragged: flat ids + offsets for EmbeddingBag"""
    u, h, i, neg = zip(*rows)
    off = np.cumsum([0] + [len(x) for x in h])[:-1]
    return {'user': torch.tensor(u), 'hist': torch.tensor(np.concatenate(h)), 'off': torch.tensor(off),
            'item': torch.tensor(i), 'neg': torch.tensor(neg)}
