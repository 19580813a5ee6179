import numpy as np
import torch
from torch.utils.data import Dataset, TensorDataset


class Interactions:
    """
    npz keys: user, item, ts (sorted by ts), item_genres [n_items, 20] multi hot, item_year [n_items]
    """

    def __init__(self, path, history_len):
        z = np.load(path)
        self.user, self.item, self.ts = z["user"], z["item"], z["ts"]
        self.genres = z["item_genres"].astype(np.float32)
        self.year = z["item_year"].astype(np.float32)
        self.n_users = int(self.user.max()) + 1
        self.n_items = len(self.genres)
        self.history_len = history_len

    def split(self):
        """last interaction of each user is the test item"""
        last = {}
        for row, u in enumerate(self.user):
            last[int(u)] = row
        test = np.array(sorted(last.values()))
        mask = np.ones(len(self.user), dtype=bool)
        mask[test] = False
        return np.nonzero(mask)[0], test

    def build_history(self, rows):
        """item ids the user saw before each of the rows, right aligned, 0 = padding"""
        hist = {}
        out = np.zeros((len(rows), self.history_len), dtype=np.int64)
        want = {int(r): k for k, r in enumerate(rows)}
        for row in range(len(self.user)):
            u = int(self.user[row])
            h = hist.setdefault(u, [])
            if row in want and h:
                tail = h[-self.history_len:]
                out[want[row], -len(tail):] = tail
            h.append(int(self.item[row]) + 1)
        return out


def make_train_set(inter, rows):
    return TensorDataset(
        torch.from_numpy(inter.user[rows].astype(np.int64)),
        torch.from_numpy(inter.build_history(rows)),
        torch.from_numpy(inter.item[rows].astype(np.int64)),
    )


class TestUsers(Dataset):
    def __init__(self, inter, rows, n_users):
        rng = np.random.default_rng(0)
        pick = rng.permutation(len(rows))[:n_users]
        self.rows = rows[np.sort(pick)]
        self.user = inter.user
        self.item = inter.item
        self.hist = inter.build_history(self.rows)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        return (
            torch.tensor(int(self.user[row])),
            torch.tensor(self.hist[i].tolist()),
            torch.tensor(int(self.item[row])),
        )
