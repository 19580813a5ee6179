import random
import torch
import torch.nn as nn


class RevIN(nn.Module):
    """Reversible instance normalisation; keeps the statistics of the last call for `denorm`."""
    def __init__(self):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(1))
        self.beta = nn.Parameter(torch.zeros(1))

    def norm(self, y):
        self.mu = y.mean(1, keepdim=True).detach()
        self.sd = (y.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt().detach()
        return (y - self.mu) / self.sd * self.gamma + self.beta

    def denorm(self, p):
        return (p - self.beta) / (self.gamma + 1e-8) * self.sd.unsqueeze(-1) + self.mu.unsqueeze(-1)


class Seq2Seq(nn.Module):
    def __init__(self, n_cal, hidden, n_q):
        super().__init__()
        self.mid = n_q // 2
        self.revin = RevIN()
        self.enc = nn.GRU(1 + n_cal, hidden, batch_first=True)
        self.dec = nn.GRUCell(1 + n_cal, hidden)
        self.head = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, n_q))

    def forward(self, past, past_cal, fut_cal, future=None, tf_ratio=0.0):
        y = self.revin.norm(past)
        if future is not None:
            future = (future - self.revin.mu) / self.revin.sd * self.revin.gamma + self.revin.beta
        _, h = self.enc(torch.cat([y.unsqueeze(-1), past_cal], -1))
        h = h[0]
        last = y[:, -1:]
        outs = []
        for t in range(fut_cal.size(1)):
            h = self.dec(torch.cat([last, fut_cal[:, t]], -1), h)
            q = self.head(h)
            outs.append(q)
            if future is not None and random.random() < tf_ratio:
                last = future[:, t:t + 1]
            else:
                last = q[:, self.mid:self.mid + 1].detach()
        return self.revin.denorm(torch.stack(outs, 1))
