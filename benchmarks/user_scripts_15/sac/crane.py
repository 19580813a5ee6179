"""Overhead crane: a trolley on a rail carries a load on a rope that can be wound up. The load must
come to rest over a target that moves from episode to episode. gym-like, without gym."""
import math

import numpy as np


class CraneEnv:
    obs_dim = 9
    act_dim = 2

    def __init__(self, seed, max_steps=400, dt=0.05):
        self.rng = np.random.default_rng(seed)
        self.max_steps = max_steps
        self.dt = dt

    def reset(self):
        self.x, self.v = 0.0, 0.0                       # trolley
        self.l, self.w = 4.0, 0.0                       # rope
        self.th, self.om = float(self.rng.uniform(-0.1, 0.1)), 0.0
        self.target = float(self.rng.uniform(2.0, 8.0)) * (1 if self.rng.random() < 0.5 else -1)
        self.depth = float(self.rng.uniform(3.0, 7.0))
        self.gust = 0.0
        self.t = 0
        return self._obs()

    def _obs(self):
        return np.array([self.x, self.v, self.l, self.w, math.sin(self.th), math.cos(self.th), self.om,
                         self.target - self.x, self.depth - self.l * math.cos(self.th)], dtype=np.float64)

    def step(self, a):
        force, hoist = float(np.clip(a[0], -1, 1)) * 2.5, float(np.clip(a[1], -1, 1)) * 1.0
        # a gust that forgets slowly; the last one is part of the state of the environment
        self.gust += -0.2 * self.gust * self.dt + 0.05 * float(self.rng.standard_normal()) * math.sqrt(self.dt)
        h = self.dt / 4
        for _ in range(4):
            acc = force - 0.3 * self.v
            self.v += h * acc
            self.x += h * self.v
            self.w += h * (hoist - 0.8 * self.w)
            self.l = min(max(self.l + h * self.w, 1.0), 9.0)
            alpha = (-9.81 * math.sin(self.th) - acc * math.cos(self.th) - 2 * self.w * self.om
                     + self.gust) / self.l - 0.05 * self.om
            self.om += h * alpha
            self.th += h * self.om
        self.t += 1
        lx = self.x + self.l * math.sin(self.th)
        ly = self.l * math.cos(self.th)
        err = math.hypot(lx - self.target, ly - self.depth)
        reward = -0.1 * err - 0.02 * abs(self.om) - 0.002 * (force ** 2 + hoist ** 2)
        if err < 0.3 and abs(self.om) < 0.1 and abs(self.v) < 0.2:
            reward += 1.0
        terminated = abs(self.x) > 12 or abs(self.th) > 1.4
        if terminated:
            reward -= 20.0
        return self._obs(), reward, terminated, self.t >= self.max_steps
