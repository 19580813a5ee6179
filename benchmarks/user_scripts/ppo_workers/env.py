import numpy as np


class Lander:
    """1-D landing: state (height, speed, fuel), actions 0 off / 1 half / 2 full thrust"""

    def __init__(self, seed):
        self.rng = np.random.RandomState(seed)
        self.reset()

    def reset(self):
        self.h, self.v, self.fuel, self.t = self.rng.uniform(4, 8), self.rng.uniform(-1, 0), 1.0, 0
        return self.obs()

    def obs(self):
        return np.array([self.h / 8, self.v / 3, self.fuel], dtype=np.float32)

    def step(self, a):
        thrust = (0.0, 0.6, 1.2)[a] if self.fuel > 0 else 0.0
        self.fuel -= 0.02 * a
        self.v += 0.3 * (thrust - 0.5) + self.rng.randn() * 0.01
        self.h += 0.3 * self.v
        self.t += 1
        done, r = False, -0.01 * a
        if self.h <= 0:
            done, r = True, 2.0 - 2.0 * abs(self.v)
        elif self.t >= 60 or self.h > 12:
            done, r = True, -3.0
        return self.obs(), r, done
