import numpy as np


class SumTree:
    def __init__(self, capacity):
        self.capacity = capacity
        self.tree = [0.0] * (2 * capacity)

    def update(self, i, p):
        i += self.capacity
        self.tree[i] = p
        i //= 2
        while i >= 1:
            self.tree[i] = self.tree[2 * i] + self.tree[2 * i + 1]
            i //= 2

    def total(self):
        return self.tree[1]

    def find(self, v):
        i = 1
        while i < self.capacity:
            if v <= self.tree[2 * i]:
                i = 2 * i
            else:
                v -= self.tree[2 * i]
                i = 2 * i + 1
        return i - self.capacity


class PrioritizedReplay:
    """Schaul et al. 2016, proportional variant. capacity must be a power of two."""

    def __init__(self, capacity, alpha=0.6, seed=0):
        assert capacity & (capacity - 1) == 0
        self.capacity = capacity
        self.alpha = alpha
        self.tree = SumTree(capacity)
        self.data = [None] * capacity
        self.pos = 0
        self.size = 0
        self.max_p = 1.0
        self.rng = np.random.default_rng(seed)

    def push(self, s, a, r, ns, d):
        self.data[self.pos] = (s, a, r, ns, d)
        self.tree.update(self.pos, self.max_p ** self.alpha)
        self.pos = (self.pos + 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)

    def sample(self, n, beta):
        seg = self.tree.total() / n
        idx = []
        for k in range(n):
            v = self.rng.uniform(seg * k, seg * (k + 1))
            idx.append(min(self.tree.find(v), self.size - 1))
        p = np.array([self.tree.tree[i + self.capacity] for i in idx]) / self.tree.total()
        w = (self.size * p) ** -beta
        return idx, [self.data[i] for i in idx], w / w.max()

    def update(self, idx, td):
        for i, e in zip(idx, td):
            p = abs(e) + 1e-5
            self.max_p = max(self.max_p, p)
            self.tree.update(i, p ** self.alpha)
