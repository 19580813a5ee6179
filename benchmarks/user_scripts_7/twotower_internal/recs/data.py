import numpy as np
import torch
from torch.utils.data import Dataset

try:
    import pandas as pd
except ImportError:  # offline image
    pd = None


def load_events(c, seed):
    """user, item, ts; the warehouse export is replaced by a synthetic log with clustered taste."""
    rng = np.random.default_rng(seed)
    taste = rng.integers(0, 40, c["users"])
    users = rng.integers(0, c["users"], c["events"])
    pop = rng.zipf(1.3, c["events"]) % (c["items"] // 40)
    noise = rng.random(c["events"]) < 0.15
    items = np.where(noise, rng.integers(0, c["items"], c["events"]), pop * 40 + taste[users])
    cols = {"user": users, "item": items % c["items"], "ts": np.arange(c["events"])}
    if pd is not None:
        df = pd.DataFrame(cols).drop_duplicates(["user", "item"]).sort_values(["user", "ts"])
        return {k: df[k].to_numpy() for k in df.columns}
    _, first = np.unique(cols["user"] * c["items"] + cols["item"], return_index=True)
    order = np.sort(first)
    order = order[np.argsort(cols["user"][order], kind="stable")]
    return {k: v[order] for k, v in cols.items()}


class EventData(Dataset):
    """One row = one (user, positive, history, negatives). The last event of a user is held out."""

    def __init__(self, ev, c):
        self.n_items, self.L, self.n_neg = c["items"], c["history"], c["negatives"]
        self.per_user = {}
        for u, i in zip(ev["user"].tolist(), ev["item"].tolist()):
            self.per_user.setdefault(u, []).append(i)
        self.seen = {u: set(v) for u, v in self.per_user.items()}
        self.rows = [(u, k) for u, v in self.per_user.items() for k in range(1, len(v) - 1)]
        self.held_out = {u: v[-1] for u, v in self.per_user.items() if len(v) > 2}
        counts = np.bincount(ev["item"], minlength=c["items"]) + 1.0
        self.log_pop = np.log(counts / counts.sum())

    def __len__(self):
        return len(self.rows)

    def history(self, u, k):
        h = self.per_user[u][max(0, k - self.L):k]
        return h + [self.n_items] * (self.L - len(h))

    def __getitem__(self, idx):
        u, k = self.rows[idx]
        negs = []
        while len(negs) < self.n_neg:
            j = np.random.randint(self.n_items)
            if j not in self.seen[u]:
                negs.append(j)
        return {"user": torch.tensor(u), "pos": torch.tensor(self.per_user[u][k]),
                "hist": torch.tensor(self.history(u, k)), "neg": torch.tensor(negs)}
