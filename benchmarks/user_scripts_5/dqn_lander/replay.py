import random
from collections import namedtuple

import numpy as np
import torch

Transition = namedtuple('Transition', ('state', 'action', 'next_state', 'reward', 'done'))


class SumTree:
    def __init__(self, capacity):
        self.capacity = capacity
        self.tree = np.zeros(2 * capacity - 1)
        self.data = [None] * capacity
        self.write = 0
        self.n = 0

    def _propagate(self, idx, change):
        while idx > 0:
            idx = (idx - 1) // 2
            self.tree[idx] += change

    def update(self, idx, p):
        change = p - self.tree[idx]
        self.tree[idx] = p
        self._propagate(idx, change)

    def add(self, p, data):
        self.data[self.write] = data
        self.update(self.write + self.capacity - 1, p)
        self.write = (self.write + 1) % self.capacity
        self.n = min(self.n + 1, self.capacity)

    def get(self, s):
        idx = 0
        while 2 * idx + 1 < len(self.tree):
            left = 2 * idx + 1
            if s <= self.tree[left]:
                idx = left
            else:
                s -= self.tree[left]
                idx = left + 1
        return idx, self.tree[idx], self.data[idx - self.capacity + 1]

    @property
    def total(self):
        return self.tree[0]


class PrioritizedReplay:
    def __init__(self, capacity, alpha=0.6, device='cpu'):
        self.tree = SumTree(capacity)
        self.alpha = alpha
        self.device = device
        self.max_p = 1.0

    def __len__(self):
        return self.tree.n

    def push(self, *args):
        # everything is stored as tensors on the training device
        self.tree.add(self.max_p ** self.alpha, Transition(*args))

    def sample(self, batch_size, beta):
        idxs, ps, items = [], [], []
        seg = self.tree.total / batch_size
        for i in range(batch_size):
            idx, p, data = self.tree.get(random.uniform(seg * i, seg * (i + 1)))
            while data is None:
                idx, p, data = self.tree.get(random.uniform(0, self.tree.total))
            idxs.append(idx)
            ps.append(p)
            items.append(data)
        probs = np.array(ps) / self.tree.total
        w = (self.tree.n * probs) ** (-beta)
        w = torch.tensor(w / w.max(), dtype=torch.float32).to(self.device)
        batch = Transition(*zip(*items))
        return idxs, w, batch

    def update(self, idxs, errors):
        for idx, e in zip(idxs, errors):
            p = abs(e) + 1e-5
            self.max_p = max(self.max_p, p)
            self.tree.update(idx, p ** self.alpha)
