"""Sparse reward maze, gym-like API without gym."""
import numpy as np


class MazeEnv:
    MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))

    def __init__(self, size=9, view=2, max_steps=120, seed=0):
        self.size, self.view, self.max_steps = size, view, max_steps
        self.rng = np.random.default_rng(seed)
        self.obs_dim = (2 * view + 1) ** 2 + 4

    def reset(self):
        s = self.size
        self.wall = self.rng.random((s, s)) < 0.2
        self.pos, self.goal = (0, 0), (s - 1, s - 1)
        self.wall[0, 0] = self.wall[s - 1, s - 1] = False
        self.t = 0
        return self._obs()

    def _obs(self):
        v = self.view
        pad = np.pad(self.wall, v, constant_values=True)
        y, x = self.pos
        win = pad[y:y + 2 * v + 1, x:x + 2 * v + 1].astype(np.float32).ravel()
        s = float(self.size)
        return np.concatenate([win, np.array([y / s, x / s, (self.goal[0] - y) / s, (self.goal[1] - x) / s], np.float32)])

    def step(self, a):
        dy, dx = self.MOVES[int(a)]
        y, x = self.pos[0] + dy, self.pos[1] + dx
        if 0 <= y < self.size and 0 <= x < self.size and not self.wall[y, x]:
            self.pos = (y, x)
        self.t += 1
        won = self.pos == self.goal
        return self._obs(), float(won) - 0.001, won or self.t >= self.max_steps, {"won": won, "length": self.t}


class SyncVec:
    def __init__(self, n, seed, **kw):
        self.envs = [MazeEnv(seed=seed + i, **kw) for i in range(n)]
        self.obs_dim = self.envs[0].obs_dim

    def reset(self):
        return np.stack([e.reset() for e in self.envs])

    def step(self, actions):
        obs, rew, done, infos = [], [], [], []
        for e, a in zip(self.envs, actions):
            o, r, d, i = e.step(a)
            if d:
                o = e.reset()
            obs.append(o); rew.append(r); done.append(d); infos.append(i if d else None)
        return np.stack(obs), np.array(rew, np.float32), np.array(done, np.float32), infos
