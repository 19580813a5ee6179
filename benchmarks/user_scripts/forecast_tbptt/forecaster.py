import torch
import torch.nn as nn
import torch.nn.functional as F


class Standardizer(nn.Module):
    """per-series mean/scale as buffers, updated by hand with momentum; the first batch sets them"""

    def __init__(self, n, momentum=0.02):
        super().__init__()
        self.register_buffer('mean', torch.zeros(n))
        self.register_buffer('scale', torch.ones(n))
        self.register_buffer('seen', torch.zeros(n, dtype=torch.bool))
        self.momentum = momentum

    def forward(self, x, ids):
        if self.training:
            with torch.no_grad():
                m, s = x.mean(1), x.std(1).clamp(min=1e-3)
                fresh = ~self.seen[ids]
                a = torch.where(fresh, torch.ones_like(m), torch.full_like(m, self.momentum))
                self.mean[ids] += a * (m - self.mean[ids])
                self.scale[ids] += a * (s - self.scale[ids])
                self.seen[ids] = True
        return (x - self.mean[ids].unsqueeze(1)) / self.scale[ids].unsqueeze(1)


class GRUForecaster(nn.Module):
    def __init__(self, n_series, hid=32, quantiles=(0.1, 0.5, 0.9)):
        super().__init__()
        self.norm = Standardizer(n_series)
        self.id = nn.Embedding(n_series, 4)
        self.rnn = nn.GRU(5, hid, batch_first=True)
        self.out = nn.Linear(hid, len(quantiles))
        self.q = quantiles

    def forward(self, win, ids, h=None):
        z = self.norm(win, ids)
        x = torch.cat([z[:, :-1, None], self.id(ids).unsqueeze(1).expand(-1, z.size(1) - 1, -1)], -1)
        o, h = self.rnn(x, h)
        return self.out(o), z[:, 1:], h

    def pinball(self, pred, target):
        loss = 0
        for i, q in enumerate(self.q):
            e = target - pred[..., i]
            loss = loss + torch.max(q * e, (q - 1) * e).mean()
        return loss


class Tracked:
    """wraps a model, counts calls, everything else goes to the model"""

    def __init__(self, model):
        self._model, self.calls = model, 0

    def __call__(self, *args, **kwargs):
        self.calls += 1
        return self._model(*args, **kwargs)

    def __getattr__(self, name):
        return getattr(self._model, name)
