import numpy as np


class KeyDoor:
    """
    7x7 room. The agent picks up a key, then walks to the door.
    Observation: agent xy, key xy, door xy (scaled), has-key flag, distances -> 10 numbers.
    """
    SIZE = 7
    MOVES = [(-1, 0), (1, 0), (0, -1), (0, 1)]

    def __init__(self, seed=0, max_steps=40):
        self.rng = np.random.RandomState(seed)
        self.max_steps = max_steps
        self.n_actions = 4
        self.obs_dim = 10

    def reset(self):
        cells = self.rng.permutation(self.SIZE * self.SIZE)[:3]
        self.agent, self.key, self.door = [[c // self.SIZE, c % self.SIZE] for c in cells]
        self.has_key = False
        self.t = 0
        return self._obs()

    def _obs(self):
        target = self.door if self.has_key else self.key
        o = self.agent + self.key + self.door
        o = [v / (self.SIZE - 1.0) for v in o]
        o.append(float(self.has_key))
        o.append((target[0] - self.agent[0]) / self.SIZE)
        o.append((target[1] - self.agent[1]) / self.SIZE)
        o.append(self.t / self.max_steps)
        return np.array(o, dtype=np.float32)

    def step(self, action):
        dx, dy = self.MOVES[action]
        self.agent[0] = min(max(self.agent[0] + dx, 0), self.SIZE - 1)
        self.agent[1] = min(max(self.agent[1] + dy, 0), self.SIZE - 1)
        self.t += 1
        reward, done = -0.02, False
        if not self.has_key and self.agent == self.key:
            self.has_key = True
            reward = 0.5
        elif self.has_key and self.agent == self.door:
            reward, done = 1.0, True
        if self.t >= self.max_steps:
            done = True
        return self._obs(), reward, done
