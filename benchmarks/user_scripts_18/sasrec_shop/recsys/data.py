"""Interaction histories and the training samples made of them. Item 0 is padding."""
import logging
from typing import Dict, List

import numpy as np
from torch.utils.data import Dataset

logger = logging.getLogger(__name__)


def synthetic_histories(users: int, items: int, min_len: int, mean_len: int, seed: int) -> List[List[int]]:
    """Users walk through categories; items of a category follow each other with a fixed preference."""
    rng = np.random.default_rng(seed)
    categories = max(4, items // 40)
    category = rng.integers(0, categories, items + 1)
    members = [np.flatnonzero(category[1:] == c) + 1 for c in range(categories)]
    members = [m if len(m) else np.array([1]) for m in members]
    histories = []
    for _ in range(users):
        n = max(min_len, int(rng.geometric(1.0 / mean_len)))
        c = int(rng.integers(categories))
        pos = int(rng.integers(len(members[c])))
        seq = []
        for _ in range(n):
            if rng.random() < 0.12:
                c = (c + 1) % categories
                pos = int(rng.integers(len(members[c])))
            pos = (pos + int(rng.integers(1, 3))) % len(members[c])
            seq.append(int(members[c][pos]))
        histories.append(seq)
    logger.info("%d users, %d interactions", users, sum(len(h) for h in histories))
    return histories


def split(histories: List[List[int]]) -> Dict[str, list]:
    """Leave one out: the last item is for test, the one before for validation."""
    return {
        "train": [h[:-2] for h in histories],
        "valid": [h[-2] for h in histories],
        "test": [h[-1] for h in histories],
    }


class NextItemDataset(Dataset):
    """(sequence, next items, sampled negatives), all left padded to max_len."""

    def __init__(self, train: List[List[int]], items: int, max_len: int, seed: int):
        self.train = train
        self.items = items
        self.max_len = max_len
        self.rng = np.random.RandomState(seed)

    def __len__(self) -> int:
        return len(self.train)

    def _negative(self, seen) -> int:
        t = self.rng.randint(1, self.items + 1)
        while t in seen:
            t = self.rng.randint(1, self.items + 1)
        return t

    def __getitem__(self, user: int):
        history = self.train[user]
        seq = np.zeros(self.max_len, dtype=np.int64)
        pos = np.zeros(self.max_len, dtype=np.int64)
        neg = np.zeros(self.max_len, dtype=np.int64)
        nxt = history[-1]
        idx = self.max_len - 1
        for item in reversed(history[:-1]):
            seq[idx] = item
            pos[idx] = nxt
            neg[idx] = self._negative(history)
            nxt = item
            idx -= 1
            if idx < 0:
                break
        return seq, pos, neg
