"""Example: classify noisy waveforms with a small 1d residual net and sparkfit."""
import os, sys
sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..'))

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from sparkfit import *
from sparkfit.callbacks import SkipSpikes


def waves(n, g):
    t = torch.linspace(0, 1, 128)
    y = torch.randint(0, 4, (n,), generator=g)
    f = 3 + 6 * torch.rand(n, 1, generator=g)
    ph = 6.28 * torch.rand(n, 1, generator=g)
    a = 6.28 * f * t + ph
    shapes = torch.stack([a.sin(), a.sin().sign(), (a / 6.28) % 1 * 2 - 1, a.sin() * (3 * a).sin()], 1)
    x = shapes[torch.arange(n), y] + 0.5 * torch.randn(n, 128, generator=g)
    noisy = torch.rand(n, generator=g) < 0.03
    y[noisy] = torch.randint(0, 4, (int(noisy.sum()),), generator=g)
    return TensorDataset(x.unsqueeze(1), y)


class Res(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.a, self.b = nn.Conv1d(c, c, 5, padding=2), nn.Conv1d(c, c, 5, padding=2)
        self.na, self.nb = nn.BatchNorm1d(c), nn.BatchNorm1d(c)
        self.act = nn.ReLU()
    def forward(self, x):
        return self.act(x + self.nb(self.b(self.act(self.na(self.a(x))))))


class Net(nn.Module):
    def __init__(self, c=24):
        super().__init__()
        self.stem = nn.Conv1d(1, c, 7, stride=2, padding=3)
        self.blocks = nn.ModuleList([Res(c) for _ in range(3)])
        self.head = nn.Linear(c, 4)
    def forward(self, x):
        x = self.stem(x)
        for b in self.blocks: x = b(x)
        return self.head(x.mean(-1))


if __name__ == '__main__':
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(1)
    train, valid = waves(2048, g), waves(512, g)
    train_dl = DataLoader(train, batch_size=64, shuffle=True)
    valid_dl = DataLoader(valid, batch_size=64)
    learn = Learner(
        Net(), train_dl, valid_dl, nn.CrossEntropyLoss(),
        lambda p: torch.optim.AdamW(p, lr=2e-3, weight_decay=0.01),
        metrics=[MeanLoss(), Accuracy()],
        cbs=[Progress(8), History(), LRScheduler(), EarlyStop(), SkipSpikes(), GradStats(), Checkpoint('waves.pt')],
    )
    learn.fit(4)
    print('skipped', learn.cbs[[type(c).__name__ for c in learn.cbs].index('SkipSpikes')].skipped)
