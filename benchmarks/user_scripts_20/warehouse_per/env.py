"""Tiny warehouse: a robot picks parcels on a grid and brings them to the dock. Pixels out, 5 actions in."""
import numpy as np


class Warehouse:
    ACTIONS = [(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)]

    def __init__(self, grid=12, scale=7, parcels=4, max_steps=200, seed=0):
        self.grid = grid
        self.scale = scale
        self.parcels = parcels
        self.max_steps = max_steps
        self.rng = np.random.default_rng(seed)
        self.shape = (4, grid * scale, grid * scale)

    def reset(self):
        cells = self.rng.permutation(self.grid * self.grid)[: self.parcels + 2]
        cells = [(int(c) // self.grid, int(c) % self.grid) for c in cells]
        self.robot, self.dock, self.left = cells[0], cells[1], set(cells[2:])
        self.load = 0
        self.t = 0
        self.frames = [self._draw()] * 4
        return np.stack(self.frames)

    def _draw(self):
        img = np.zeros((self.grid, self.grid), dtype=np.uint8)
        for r, c in self.left:
            img[r, c] = 120
        img[self.dock] = 70
        img[self.robot] = 200 + 10 * self.load
        return np.kron(img, np.ones((self.scale, self.scale), dtype=np.uint8))

    def step(self, a):
        dr, dc = self.ACTIONS[a]
        r = min(self.grid - 1, max(0, self.robot[0] + dr))
        c = min(self.grid - 1, max(0, self.robot[1] + dc))
        self.robot = (r, c)
        self.t += 1
        reward = -0.01
        if self.robot in self.left and self.load < 2:
            self.left.remove(self.robot)
            self.load += 1
            reward += 0.2
        if self.robot == self.dock and self.load:
            reward += 1.0 * self.load
            self.load = 0
        done = not self.left and self.load == 0
        self.frames = self.frames[1:] + [self._draw()]
        return np.stack(self.frames), reward, done, self.t >= self.max_steps
