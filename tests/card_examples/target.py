"""Train a network against a slow copy of itself."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
data = TensorDataset(torch.randn(48, 8), torch.randn(48, 1))
loader = DataLoader(data, batch_size=8, shuffle=True)
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)).to(device)
target = copy.deepcopy(net).requires_grad_(False)
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
tau = 0.05
for epoch in range(2):
    total_loss = 0
    for step, (x, reward) in enumerate(loader):
        x, reward = x.to(device), reward.to(device)
        goal = reward + 0.9 * target(x)
        loss = F.smooth_l1_loss(net(x), goal)
        optimizer.zero_grad()
        loss.backward()
        for p in net.parameters():
            p.grad.data.clamp_(-1, 1)
        optimizer.step()
        for p, t in zip(net.parameters(), target.parameters(), strict=True):
            t.data.copy_(tau * p.data + (1 - tau) * t.data)
        total_loss += loss
        print(f"step {step}", flush=True)
    print(f"epoch {epoch}: loss {total_loss.item() / len(loader):.4f}")
