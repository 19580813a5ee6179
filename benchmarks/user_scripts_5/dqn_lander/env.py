import math
import random


class RocketEnv:
    """2-D lander, very simplified.  state: x, y, vx, vy, angle, omega, fuel"""
    n_actions = 4
    n_obs = 7

    def __init__(self, seed=None):
        self.rng = random.Random(seed)

    def reset(self):
        self.x = self.rng.uniform(-1, 1)
        self.y = 1.5
        self.vx = self.rng.uniform(-0.2, 0.2)
        self.vy = 0.0
        self.a = self.rng.uniform(-0.1, 0.1)
        self.w = 0.0
        self.fuel = 1.0
        self.t = 0
        return self._obs()

    def _obs(self):
        return [self.x, self.y, self.vx, self.vy, self.a, self.w, self.fuel]

    def _shape(self):
        return -abs(self.x) - abs(self.y) - 0.5 * (abs(self.vx) + abs(self.vy)) - abs(self.a)

    def step(self, action):
        before = self._shape()
        dt = 0.05
        thrust = 0.0
        if action == 1 and self.fuel > 0:
            thrust = 2.2
            self.fuel -= 0.01
        elif action == 2:
            self.w += 0.08
        elif action == 3:
            self.w -= 0.08
        self.vx += -math.sin(self.a) * thrust * dt
        self.vy += (math.cos(self.a) * thrust - 1.0) * dt
        self.x += self.vx * dt
        self.y += self.vy * dt
        self.a += self.w * dt
        self.t += 1
        r = 10 * (self._shape() - before)
        done = False
        if self.y <= 0:
            done = True
            ok = abs(self.x) < 0.4 and abs(self.vy) < 0.5 and abs(self.a) < 0.3
            r += 10 if ok else -10
        elif abs(self.x) > 2 or self.y > 2.5 or self.t >= 200:
            done = True
            r -= 10
        return self._obs(), r, done
