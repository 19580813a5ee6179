import random

import numpy as np


class SumTree(object):
    def __init__(self, capacity):
        self.capacity = capacity
        self.tree = np.zeros(2 * capacity - 1)

    def update(self, leaf, p):
        i = leaf + self.capacity - 1
        change = p - self.tree[i]
        self.tree[i] = p
        while i != 0:
            i = (i - 1) // 2
            self.tree[i] += change

    def find(self, s):
        i = 0
        while True:
            left = 2 * i + 1
            if left >= len(self.tree):
                return i - self.capacity + 1
            if s <= self.tree[left]:
                i = left
            else:
                s -= self.tree[left]
                i = left + 1

    @property
    def total(self):
        return self.tree[0]


class PrioritizedReplay(object):
    def __init__(self, capacity, alpha=0.6, eps=1e-3):
        self.capacity, self.alpha, self.eps = capacity, alpha, eps
        self.tree = SumTree(capacity)
        self.memory = [None] * capacity
        self.pos, self.size, self.max_p = 0, 0, 1.0

    def __len__(self):
        return self.size

    def push(self, s, a, r, s2, d):
        self.memory[self.pos] = (s, a, r, s2, d)
        self.tree.update(self.pos, self.max_p ** self.alpha)
        self.pos = (self.pos + 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)

    def sample(self, n, beta):
        seg = self.tree.total / n
        idx, items, prob = [], [], []
        for k in range(n):
            leaf = min(self.tree.find(random.uniform(k * seg, (k + 1) * seg)), self.size - 1)
            idx.append(leaf)
            items.append(self.memory[leaf])
            prob.append(self.tree.tree[leaf + self.capacity - 1] / self.tree.total)
        w = (self.size * np.array(prob)) ** -beta
        return idx, items, (w / w.max()).astype(np.float32)

    def update(self, idx, err):
        for i, e in zip(idx, err):
            p = abs(e) + self.eps
            self.max_p = max(self.max_p, p)
            self.tree.update(i, p ** self.alpha)
