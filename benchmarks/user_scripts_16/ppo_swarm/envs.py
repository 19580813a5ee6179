"""Vectorised toy environment: a thruster-driven craft must reach moving targets.
All copies are stepped at once with numpy."""
import numpy as np


class VecCraft:
    obs_dim = 18
    n_actions = 9

    def __init__(self, n, seed, horizon=200, n_targets=4):
        self.n, self.horizon, self.k = n, horizon, n_targets
        self.rng = np.random.RandomState(seed)
        self.pos = np.zeros((n, 2), np.float32)
        self.vel = np.zeros((n, 2), np.float32)
        self.targets = np.zeros((n, n_targets, 2), np.float32)
        self.drift = np.zeros((n, n_targets, 2), np.float32)
        self.t = np.zeros(n, np.int64)
        self.ret = np.zeros(n, np.float32)
        ang = np.arange(8) * np.pi / 4
        self.thrust = np.concatenate([np.zeros((1, 2)), np.stack([np.cos(ang), np.sin(ang)], 1)]).astype(np.float32)

    def _reset(self, mask):
        m = int(mask.sum())
        self.pos[mask] = self.rng.uniform(-1, 1, (m, 2))
        self.vel[mask] = 0
        self.targets[mask] = self.rng.uniform(-1, 1, (m, self.k, 2))
        self.drift[mask] = self.rng.uniform(-.01, .01, (m, self.k, 2))
        self.t[mask] = 0
        self.ret[mask] = 0

    def _obs(self):
        rel = (self.targets - self.pos[:, None]).reshape(self.n, -1)
        d = np.sqrt((rel.reshape(self.n, self.k, 2) ** 2).sum(-1))
        return np.concatenate([self.pos, self.vel, rel, d, (self.t / self.horizon)[:, None],
                               np.ones((self.n, 1))], 1).astype(np.float32)

    def reset(self):
        self._reset(np.ones(self.n, bool))
        return self._obs()

    def step(self, action):
        self.vel = 0.9 * self.vel + 0.02 * self.thrust[action]
        self.pos = np.clip(self.pos + self.vel, -1.5, 1.5)
        self.targets += self.drift
        self.t += 1
        d = np.sqrt(((self.targets - self.pos[:, None]) ** 2).sum(-1))
        hit = d < 0.12
        reward = (hit.sum(1) - 0.05 * d.min(1)).astype(np.float32)
        hr, hc = np.nonzero(hit)
        self.targets[hr, hc] = self.rng.uniform(-1, 1, (len(hr), 2))
        self.ret += reward
        done = self.t >= self.horizon
        finished = self.ret[done].copy()
        if done.any():
            self._reset(done)
        return self._obs(), reward, done, finished
