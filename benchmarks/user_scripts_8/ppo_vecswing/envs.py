"""Hand written vectorised environments: torque-limited cart + pendulum, numpy only."""
import numpy as np


class SwingUp:
    """One cart-pole swing-up. obs: x, x_dot, cos th, sin th, th_dot."""
    dt, g, mc, mp, length, force = 0.04, 9.81, 1.0, 0.1, 0.6, 8.0
    max_steps = 120

    def __init__(self, seed):
        self.rng = np.random.RandomState(seed)
        self.state = None
        self.t = 0

    def reset(self):
        x, xd, thd = self.rng.uniform(-0.1, 0.1, 3)
        th = np.pi + self.rng.uniform(-0.2, 0.2)
        self.state = np.array([x, xd, th, thd])
        self.t = 0
        return self._obs()

    def _obs(self):
        x, xd, th, thd = self.state
        return np.array([x, xd, np.cos(th), np.sin(th), thd], dtype=np.float64)

    def step(self, action):
        x, xd, th, thd = self.state
        f = float(np.clip(action[0], -1, 1)) * self.force
        s, c = np.sin(th), np.cos(th)
        tot = self.mc + self.mp
        tmp = (f + self.mp * self.length * thd ** 2 * s) / tot
        thacc = (self.g * s - c * tmp) / (self.length * (4.0 / 3.0 - self.mp * c ** 2 / tot))
        xacc = tmp - self.mp * self.length * thacc * c / tot
        xd, thd = xd + self.dt * xacc, thd + self.dt * thacc
        x, th = x + self.dt * xd, th + self.dt * thd
        self.state = np.array([x, xd, th, thd])
        self.t += 1
        reward = 0.5 * (1 + np.cos(th)) - 0.02 * x ** 2 - 0.001 * f ** 2
        done = bool(abs(x) > 2.4) or self.t >= self.max_steps
        return self._obs(), reward, done, {}


class SyncVecEnv:
    def __init__(self, num_envs, seed):
        self.envs = [SwingUp(seed + i) for i in range(num_envs)]
        self.num_envs = num_envs
        self.ep_ret = np.zeros(num_envs)
        self.ep_len = np.zeros(num_envs, dtype=int)

    def reset(self):
        return np.stack([e.reset() for e in self.envs])

    def step(self, actions):
        obs, rews, dones, infos = [], [], [], []
        for i, env in enumerate(self.envs):
            o, r, d, info = env.step(actions[i])
            self.ep_ret[i] += r
            self.ep_len[i] += 1
            if d:
                info['episode'] = {'r': self.ep_ret[i], 'l': self.ep_len[i]}
                self.ep_ret[i], self.ep_len[i] = 0, 0
                o = env.reset()
            obs.append(o)
            rews.append(r)
            dones.append(d)
            infos.append(info)
        return np.stack(obs), np.array(rews), np.array(dones), infos


class RunningMeanStd:
    def __init__(self, shape):
        self.mean, self.var, self.count = np.zeros(shape), np.ones(shape), 1e-4

    def update(self, x):
        bm, bv, bc = x.mean(axis=0), x.var(axis=0), x.shape[0]
        delta, tot = bm - self.mean, self.count + bc
        m2 = self.var * self.count + bv * bc + delta ** 2 * self.count * bc / tot
        self.mean, self.var, self.count = self.mean + delta * bc / tot, m2 / tot, tot


class NormalizeObs:
    def __init__(self, venv):
        self.venv = venv
        self.rms = RunningMeanStd((5,))
        self.num_envs = venv.num_envs
        self.training = True

    def _norm(self, obs):
        if self.training:
            self.rms.update(obs)
        return np.clip((obs - self.rms.mean) / np.sqrt(self.rms.var + 1e-8), -10, 10)

    def reset(self):
        return self._norm(self.venv.reset())

    def step(self, actions):
        obs, rew, done, infos = self.venv.step(actions)
        return self._norm(obs), rew, done, infos
