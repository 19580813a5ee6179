import numpy as np


class GridEnv:
    """8x8 maze with a moving guard. Gym-like: reset() -> obs, step(a) -> obs, r, done, info"""
    size = 8

    def __init__(self, seed=0):
        self.rng = np.random.RandomState(seed)
        self.n_actions = 4

    def _obs(self):
        o = np.zeros((3, self.size, self.size), dtype=np.float32)
        o[0][tuple(self.pos)] = 1
        o[1][tuple(self.goal)] = 1
        o[2][tuple(self.guard)] = 1
        return o

    def reset(self):
        self.pos, self.goal, self.guard = [self.rng.randint(0, self.size, 2) for _ in range(3)]
        self.t = 0
        return self._obs()

    def step(self, a):
        d = [(-1, 0), (1, 0), (0, -1), (0, 1)]
        before = np.abs(self.pos - self.goal).sum()
        self.pos = np.clip(self.pos + d[a], 0, self.size - 1)
        self.guard = np.clip(self.guard + d[self.rng.randint(4)], 0, self.size - 1)
        self.t += 1
        r = 0.1 * (before - np.abs(self.pos - self.goal).sum()) - 0.01
        done = False
        if (self.pos == self.goal).all():
            r, done = r + 1.0, True
        elif (self.pos == self.guard).all():
            r, done = r - 1.0, True
        return self._obs(), float(r), done or self.t >= 40, {}
