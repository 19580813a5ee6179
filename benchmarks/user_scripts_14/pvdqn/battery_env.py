"""House with photovoltaics, a battery and a day-ahead price; one step is 15 minutes.

Many houses are simulated side by side. State per house (float32):
    last `window` steps of (load, pv, price), state of charge, sin/cos of the time of day
Actions: 0 idle, 1..3 charge (1/3, 2/3, full power), 4..6 discharge.
"""
import numpy as np

STEPS_PER_DAY = 96


def make_profiles(days, seed):
    rng = np.random.default_rng(seed)
    t = np.arange(days * STEPS_PER_DAY)
    hour = (t % STEPS_PER_DAY) / 4.0
    day = t // STEPS_PER_DAY
    season = 0.5 - 0.5 * np.cos(2 * np.pi * day / 365.0)
    cloud = np.repeat(rng.beta(2, 1.5, days), STEPS_PER_DAY)
    pv = 5.0 * np.clip(np.sin((hour - 6) / 12 * np.pi), 0, None) * (0.35 + 0.65 * season) * cloud
    load = 0.35 + 0.9 * np.exp(-0.5 * ((hour - 19) / 1.8) ** 2) + 0.5 * np.exp(-0.5 * ((hour - 7.5) / 1.0) ** 2)
    load = load * (1 + 0.25 * rng.standard_normal(len(t))).clip(0.2, 3)
    price = 0.18 + 0.10 * np.exp(-0.5 * ((hour - 19) / 2.0) ** 2) - 0.08 * np.exp(-0.5 * ((hour - 13) / 2.5) ** 2) * season
    price = price + 0.02 * rng.standard_normal(len(t))
    return np.stack([load, pv, price], axis=1).astype(np.float32)


class BatteryHouses:
    def __init__(self, n, window=48, days=365, capacity=10.0, power=5.0, eff=0.95, seed=0):
        self.n, self.window = n, window
        self.capacity, self.power, self.eff = capacity, power, eff
        self.profiles = make_profiles(days, seed)
        self.scale = np.array([1.0, 3.0, 0.2], np.float32)
        self.rng = np.random.default_rng(seed + 1)
        self.n_actions = 7
        self.obs_dim = 3 * window + 3
        self.horizon = 2 * STEPS_PER_DAY

    def reset(self, mask=None):
        if mask is None:
            mask = np.ones(self.n, bool)
            self.t = np.zeros(self.n, np.int64)
            self.age = np.zeros(self.n, np.int64)
            self.soc = np.zeros(self.n, np.float32)
        k = int(mask.sum())
        self.t[mask] = self.rng.integers(self.window, len(self.profiles) - self.horizon - 1, k)
        self.age[mask] = 0
        self.soc[mask] = self.rng.uniform(0.1, 0.9, k) * self.capacity
        return self.observe()

    def observe(self):
        idx = self.t[:, None] - np.arange(self.window)[None, ::-1]
        past = (self.profiles[idx] / self.scale).reshape(self.n, -1)
        phase = 2 * np.pi * (self.t % STEPS_PER_DAY) / STEPS_PER_DAY
        extra = np.stack([self.soc / self.capacity, np.sin(phase), np.cos(phase)], axis=1)
        return np.concatenate([past, extra], axis=1).astype(np.float32)

    def step(self, action):
        frac = np.where(action <= 3, action, -(action - 3)) / 3.0
        energy = frac * self.power * 0.25
        up = np.minimum(np.maximum(energy, 0), (self.capacity - self.soc) / self.eff)
        down = np.minimum(np.maximum(-energy, 0), self.soc)
        self.soc = (self.soc + up * self.eff - down).astype(np.float32)
        load, pv, price = self.profiles[self.t].T
        net = (load - pv) * 0.25 + up - down * self.eff
        cost = np.where(net > 0, net * price, net * 0.06) + 0.004 * (up + down)
        self.t += 1
        self.age += 1
        done = self.age >= self.horizon
        return self.observe(), (-cost).astype(np.float32), done
