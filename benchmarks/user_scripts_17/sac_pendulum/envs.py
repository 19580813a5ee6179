"""Pendulum swing-up in numpy (same equations as gym's Pendulum-v1)."""
import numpy as np


class Pendulum:
    max_speed = 8.0
    max_torque = 2.0
    dt = 0.05
    g = 10.0
    horizon = 200
    obs_dim = 3
    act_dim = 1

    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.th = self.rng.uniform(-np.pi, np.pi)
        self.thdot = self.rng.uniform(-1.0, 1.0)
        self.t = 0
        return self._obs()

    def _obs(self):
        return np.array([np.cos(self.th), np.sin(self.th), self.thdot], dtype=np.float32)

    def step(self, action):
        u = float(np.clip(action[0], -1.0, 1.0)) * self.max_torque
        angle = ((self.th + np.pi) % (2 * np.pi)) - np.pi
        cost = angle ** 2 + 0.1 * self.thdot ** 2 + 0.001 * u ** 2
        self.thdot += (3 * self.g / 2 * np.sin(self.th) + 3.0 * u) * self.dt
        self.thdot = float(np.clip(self.thdot, -self.max_speed, self.max_speed))
        self.th += self.thdot * self.dt
        self.t += 1
        truncated = self.t >= self.horizon
        return self._obs(), -cost, False, truncated
