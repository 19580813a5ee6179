import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical


def layer_init(layer, std=np.sqrt(2), bias=0.0):
    nn.init.orthogonal_(layer.weight, std)
    nn.init.constant_(layer.bias, bias)
    return layer


class ActorCritic(nn.Module):
    def __init__(self, obs_dim, n_act, hid):
        super().__init__()
        self.critic = nn.Sequential(layer_init(nn.Linear(obs_dim, hid)), nn.Tanh(), layer_init(nn.Linear(hid, hid)), nn.Tanh(),
                                    layer_init(nn.Linear(hid, 1), 1.0))
        self.actor = nn.Sequential(layer_init(nn.Linear(obs_dim, hid)), nn.Tanh(), layer_init(nn.Linear(hid, hid)), nn.Tanh(),
                                   layer_init(nn.Linear(hid, n_act), 0.01))

    def value(self, obs):
        return self.critic(obs).squeeze(-1)

    def act(self, obs, action=None):
        dist = Categorical(logits=self.actor(obs))
        if action is None:
            action = dist.sample()
        return action, dist.log_prob(action), dist.entropy(), self.value(obs)


class RND(nn.Module):
    """random network distillation: curiosity = error of predicting a fixed random net"""

    def __init__(self, obs_dim, hid=128, out=64):
        super().__init__()
        mk = lambda: nn.Sequential(layer_init(nn.Linear(obs_dim, hid)), nn.ReLU(), layer_init(nn.Linear(hid, hid)), nn.ReLU(), layer_init(nn.Linear(hid, out)))
        self.target, self.predictor = mk(), mk()
        self.opt = torch.optim.Adam(self.predictor.parameters(), lr=1e-4)

    def error(self, obs):
        t = self.target(obs)
        return (self.predictor(obs) - t).pow(2).mean(-1)


class RunningMeanStd:
    def __init__(self, shape=()):
        self.mean, self.var, self.count = np.zeros(shape), np.ones(shape), 1e-4

    def update(self, x):
        m, v, n = x.mean(0), x.var(0), x.shape[0]
        d, tot = m - self.mean, self.count + n
        self.var = (self.var * self.count + v * n + d ** 2 * self.count * n / tot) / tot
        self.mean, self.count = self.mean + d * n / tot, tot
