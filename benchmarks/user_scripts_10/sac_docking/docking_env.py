"""A small gym-like environment: a cart with two thrusters has to dock at a moving platform."""
import numpy as np


class Box:
    def __init__(self, low, high, shape, rng):
        self.low = np.full(shape, low, dtype=np.float32)
        self.high = np.full(shape, high, dtype=np.float32)
        self.shape = shape
        self.rng = rng

    def sample(self):
        return self.rng.uniform(self.low, self.high).astype(np.float32)


class DockingEnv:
    dt = 0.05
    _max_episode_steps = 200

    def __init__(self, seed=0):
        self.rng = np.random.RandomState(seed)
        self.action_space = Box(-1.0, 1.0, (2,), self.rng)
        self.observation_space = Box(-np.inf, np.inf, (8,), self.rng)

    def reset(self):
        self.pos = self.rng.uniform(-2, 2, size=2)
        self.vel = self.rng.uniform(-0.3, 0.3, size=2)
        self.phase = self.rng.uniform(0, 2 * np.pi)
        self.speed = self.rng.uniform(0.3, 0.8)
        self.t = 0
        return self._obs()

    def _target(self):
        return np.array([np.cos(self.phase), np.sin(self.phase)]) * 0.8

    def _obs(self):
        target = self._target()
        return np.concatenate([
            self.pos, self.vel, target - self.pos, [np.cos(self.phase), np.sin(self.phase)]
        ]).astype(np.float32)

    def step(self, action):
        a = np.clip(action, -1, 1)
        wind = self.rng.normal(0, 0.05, size=2)
        self.vel = self.vel + self.dt * (3.0 * a - 0.5 * self.vel) + wind * self.dt
        self.pos = np.clip(self.pos + self.dt * self.vel, -4, 4)
        self.phase += self.dt * self.speed
        self.t += 1
        dist = np.linalg.norm(self._target() - self.pos)
        reward = -dist - 0.05 * float(np.square(a).sum()) + (2.0 if dist < 0.15 else 0.0)
        done = self.t >= self._max_episode_steps
        return self._obs(), float(reward), done, {'dist': dist}
