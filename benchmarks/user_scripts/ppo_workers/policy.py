import torch
import torch.nn as nn
from torch.distributions import Categorical


class RunningNorm(nn.Module):
    """mean / var kept in buffers and updated by hand (Welford), in double"""

    def __init__(self, n):
        super().__init__()
        self.register_buffer('mean', torch.zeros(n, dtype=torch.float64))
        self.register_buffer('m2', torch.ones(n, dtype=torch.float64))
        self.register_buffer('count', torch.ones((), dtype=torch.float64))

    @torch.no_grad()
    def update(self, x):
        x = x.double()
        b, bm = x.size(0), x.mean(0)
        delta = bm - self.mean
        tot = self.count + b
        self.m2 += ((x - bm) ** 2).sum(0) + delta ** 2 * self.count * b / tot
        self.mean.add_(delta * b / tot)
        self.count.fill_(tot)

    def forward(self, x):
        return ((x - self.mean) / (self.m2 / self.count).sqrt().clamp(min=1e-4)).float().clamp(-5, 5)


class ActorCritic(nn.Module):
    def __init__(self, n_obs=3, n_act=3, hid=32):
        super().__init__()
        self.norm = RunningNorm(n_obs)
        self.body = nn.Sequential(nn.Linear(n_obs, hid), nn.Tanh(), nn.Linear(hid, hid), nn.Tanh())
        self.pi, self.v = nn.Linear(hid, n_act), nn.Linear(hid, 1)
        for m in self.modules():
            if isinstance(m, nn.Linear):
                nn.init.orthogonal_(m.weight, 2 ** 0.5)
                nn.init.zeros_(m.bias)
        self.pi.weight.data.mul_(0.01)

    def forward(self, x):
        h = self.body(self.norm(x))
        return Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)
