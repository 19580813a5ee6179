"""
Multi-product inventory with a shared truck.

Each day the agent picks one of ORDER_LEVELS quantities for every product; orders arrive after LEAD days.
Demand is Poisson with a weekly pattern per product. Reward: margin on sales - holding - truck and waste cost.
"""
import numpy as np

ORDER_LEVELS = 6
LEAD = 2
YEAR = 120          # days in an episode


class InventoryEnv:
    def __init__(self, products=8, seed=0):
        self.products = products
        self.rng = np.random.default_rng(seed)
        shop = np.random.default_rng(99)                       # prices are the same in all shops
        self.margin = shop.uniform(2.0, 6.0, products)
        self.hold = shop.uniform(0.05, 0.2, products)
        self.base = shop.uniform(3.0, 9.0, products)
        self.unit = np.ceil(self.base / 2)
        self.capacity = 8 * self.base
        self.obs_dim = products * (2 + LEAD) + 7

    def reset(self):
        self.day = 0
        self.stock = self.base * self.rng.uniform(1.0, 4.0, self.products)
        self.pipeline = [np.zeros(self.products) for _ in range(LEAD)]
        self.level = self.rng.uniform(0.7, 1.3, self.products)  # this year's popularity, not observed
        self.last = self.base * self.level
        return self.observe()

    def observe(self):
        week = np.zeros(7)
        week[self.day % 7] = 1
        return np.concatenate([self.stock / self.capacity, self.last / self.base]
                              + [p / self.capacity for p in self.pipeline] + [week]).astype(np.float32)

    def step(self, action):
        order = np.asarray(action) * self.unit
        arrived = self.pipeline.pop(0)
        self.pipeline.append(order)
        before = self.stock + arrived
        waste = np.maximum(before - self.capacity, 0)
        before = np.minimum(before, self.capacity)
        rate = self.base * self.level * (1 + 0.5 * np.sin(2 * np.pi * (self.day % 7) / 7 + np.arange(self.products)))
        demand = self.rng.poisson(rate)
        sold = np.minimum(before, demand)
        self.stock = before - sold
        self.last = sold
        reward = (self.margin * sold).sum() - (self.hold * self.stock).sum() - 2.0 * waste.sum()
        if order.sum() > 0:
            reward -= 15.0 + 0.3 * order.sum()
        self.day += 1
        return self.observe(), reward / 1000.0, self.day >= YEAR
