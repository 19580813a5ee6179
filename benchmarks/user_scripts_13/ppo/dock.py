"""A small capsule has to dock at a slowly spinning station, 2-D, with thrusters and drag.

Observation (9): position, velocity, sin/cos of own angle, spin, sin/cos of the station's port.
Action (2): main thruster in [-1, 1], torque in [-1, 1].
"""
import math
import random


class Dock:
  OBS, ACT, LIMIT = 9, 2, 200

  def __init__(self, seed):
    self.rng = random.Random(seed)

  def reset(self):
    r, a = self.rng.uniform(1.0, 2.0), self.rng.uniform(-math.pi, math.pi)
    self.x, self.y = r * math.cos(a), r * math.sin(a)
    self.vx = self.rng.gauss(0, 0.1)
    self.vy = self.rng.gauss(0, 0.1)
    self.phi = self.rng.uniform(-math.pi, math.pi)
    self.spin = 0.0
    self.port = self.rng.uniform(-math.pi, math.pi)
    self.turn = self.rng.uniform(-0.2, 0.2)
    self.t = 0
    self.last = self.dist()
    return self.obs()

  def target(self):
    return 0.3 * math.cos(self.port), 0.3 * math.sin(self.port)

  def dist(self):
    tx, ty = self.target()
    return math.hypot(self.x - tx, self.y - ty)

  def obs(self):
    return [self.x, self.y, self.vx, self.vy, math.sin(self.phi), math.cos(self.phi), self.spin,
            math.sin(self.port), math.cos(self.port)]

  def step(self, action):
    thrust = max(-1.0, min(1.0, float(action[0])))
    torque = max(-1.0, min(1.0, float(action[1])))
    dt = 0.05
    for _ in range(2):
      self.spin += dt * (3.0 * torque - 1.0 * self.spin)
      self.phi += dt * self.spin
      self.vx += dt * (1.5 * thrust * math.cos(self.phi) - 0.3 * self.vx)
      self.vy += dt * (1.5 * thrust * math.sin(self.phi) - 0.3 * self.vy)
      self.x += dt * self.vx
      self.y += dt * self.vy
      self.port += dt * self.turn
    self.t += 1
    d = self.dist()
    reward = 2.0 * (self.last - d) - 0.01 - 0.005 * (thrust * thrust + torque * torque)
    self.last = d
    docked = d < 0.15 and math.hypot(self.vx, self.vy) < 0.6
    lost = math.hypot(self.x, self.y) > 4.0
    if docked:
      reward += 5.0
    if lost:
      reward -= 2.0
    return self.obs(), reward, docked or lost, self.t >= self.LIMIT, docked


class VecDock:
  def __init__(self, n, seed):
    self.envs = [Dock(seed * 1000 + i) for i in range(n)]
    self.ret = [0.0] * n

  def reset(self):
    self.ret = [0.0] * len(self.envs)
    return [e.reset() for e in self.envs]

  def step(self, actions):
    obs, rew, term, trunc, finals, info = [], [], [], [], [], []
    for i, e in enumerate(self.envs):
      o, r, te, tr, docked = e.step(actions[i])
      self.ret[i] += r
      finals.append(o)
      if te or tr:
        info.append((self.ret[i], e.t, docked))
        self.ret[i] = 0.0
        o = e.reset()
      obs.append(o)
      rew.append(r)
      term.append(te)
      trunc.append(tr and not te)
    return obs, rew, term, trunc, finals, info
