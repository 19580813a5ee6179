import numpy as np


class RunningNorm:
    """Welford in double precision; after a million steps float32 would stop counting."""

    def __init__(self, dim):
        self.n = 1e-4
        self.mean = np.zeros(dim, dtype=np.float64)
        self.var = np.ones(dim, dtype=np.float64)

    def update(self, x):
        d = x - self.mean
        tot = self.n + 1.0
        self.mean += d / tot
        self.var += (d * d * self.n / tot - self.var) / tot
        self.n = tot

    def __call__(self, x):
        return np.clip((x - self.mean) / np.sqrt(self.var + 1e-8), -10, 10).astype(np.float32)


class ReplayBuffer:
    def __init__(self, size, obs_dim, act_dim):
        # raw observations: the normaliser moves on, old entries must follow it
        self.obs = np.zeros((size, obs_dim), np.float64)
        self.next_obs = np.zeros((size, obs_dim), np.float64)
        self.act = np.zeros((size, act_dim), np.float32)
        self.rew = np.zeros(size, np.float32)
        self.done = np.zeros(size, np.float32)
        self.size, self.pos, self.full = size, 0, False

    def add(self, o, o2, a, r, d):
        i = self.pos
        self.obs[i], self.next_obs[i], self.act[i], self.rew[i], self.done[i] = o, o2, a, r, d
        self.pos = (i + 1) % self.size
        self.full = self.full or self.pos == 0

    def sample(self, n, rng):
        idx = rng.integers(0, self.size if self.full else self.pos, n)
        return self.obs[idx], self.next_obs[idx], self.act[idx], self.rew[idx], self.done[idx]
