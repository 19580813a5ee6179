"""two-link arm that has to reach a moving target; no gym, so that it runs anywhere"""
import numpy as np


class ReacherEnv:
    obs_dim, act_dim = 11, 2
    max_steps = 200

    def __init__(self, seed):
        self.rng = np.random.RandomState(seed)

    def reset(self):
        self.angle = self.rng.uniform(-np.pi, np.pi, 2)
        self.speed = np.zeros(2)
        self.phase = self.rng.uniform(0, 2 * np.pi)
        self.radius = self.rng.uniform(0.3, 0.9)
        self.t = 0
        return self._obs()

    def _tip(self):
        a, b = self.angle[0], self.angle.sum()
        return 0.5 * np.array([np.cos(a) + np.cos(b), np.sin(a) + np.sin(b)])

    def _target(self):
        p = self.phase + 0.01 * self.t
        return self.radius * np.array([np.cos(p), np.sin(p)])

    def _obs(self):
        target = self._target()
        return np.concatenate([np.cos(self.angle), np.sin(self.angle), self.speed * 0.1, target,
                               self._tip() - target, [self.t / self.max_steps]])

    def step(self, action):
        torque = np.clip(action, -1, 1)
        self.speed = 0.95 * self.speed + 2.0 * torque
        self.angle = self.angle + 0.02 * self.speed
        self.t += 1
        dist = np.linalg.norm(self._tip() - self._target())
        reward = -dist - 0.01 * float((torque ** 2).sum()) + (1.0 if dist < 0.08 else 0.0)
        return self._obs(), reward, False, self.t >= self.max_steps
