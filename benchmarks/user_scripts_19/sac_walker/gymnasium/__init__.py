"""What sac.py uses of gymnasium, with a walker of linear dynamics in place of MuJoCo's."""

import numpy as np

OBSERVATIONS, ACTIONS = 17, 6


class Box:
    def __init__(self, limit, size):
        self.low = np.full(size, -limit, dtype=np.float32)
        self.high = np.full(size, limit, dtype=np.float32)
        self.shape = (size,)
        self.rng = np.random.default_rng()

    def seed(self, seed=None):
        self.rng = np.random.default_rng(seed)

    def sample(self):
        return self.rng.uniform(self.low, self.high).astype(np.float32)


class Walker:
    def __init__(self):
        fixed = np.random.default_rng(1)
        self.observation_space = Box(np.inf, OBSERVATIONS)
        self.action_space = Box(1.0, ACTIONS)
        self.moved = fixed.normal(0, 0.3, (OBSERVATIONS, ACTIONS))
        self.kept = 0.95 * np.linalg.qr(fixed.normal(size=(OBSERVATIONS, OBSERVATIONS)))[0]
        self.rng = np.random.default_rng()
        self.state, self.steps = np.zeros(OBSERVATIONS), 0

    def reset(self, *, seed=None):
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.state, self.steps = self.rng.uniform(-0.1, 0.1, OBSERVATIONS), 0
        return self.state.copy(), {}

    def step(self, action):
        action = np.clip(action, -1.0, 1.0)
        noise = self.rng.normal(0, 0.01, OBSERVATIONS)
        self.state = self.kept @ self.state + self.moved @ action + noise
        self.steps += 1
        reward = 1.0 + float(self.state[0]) - 1e-3 * float(np.square(action).sum())
        fallen = bool(abs(self.state[1]) > 2.0)
        return self.state.copy(), reward, fallen, self.steps >= 200, {}

    def close(self):
        pass


def make(name):
    return Walker()
