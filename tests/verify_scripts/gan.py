"""Two models, two optimizers, three backwards an iteration; one loader."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

G, D = nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
forgotten = nn.Linear(1, 1)
g_opt, d_opt = torch.optim.Adam(G.parameters()), torch.optim.SGD(D.parameters(), 0.1)
bce = nn.BCEWithLogitsLoss()
for (real,) in DataLoader(TensorDataset(torch.randn(96, 8)), 32, shuffle=True):
    fake = G(torch.randn(32, 4))
    d_opt.zero_grad()
    bce(D(real), torch.ones(32, 1)).backward()
    bce(D(fake.detach()), torch.zeros(32, 1)).backward()
    d_opt.step()
    g_opt.zero_grad()
    bce(forgotten(D(fake)), torch.ones(32, 1)).backward()
    g_opt.step()
