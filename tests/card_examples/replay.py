"""Learn values of states from a buffer of transitions, as agents do."""

import random
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

random.seed(0)
torch.manual_seed(0)
world = np.random.RandomState(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
buffer = deque(maxlen=200)
net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1)).to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
for step in range(60):
    buffer.append((world.randn(4), world.rand(), world.randn(4)))
    if step < 32:
        continue
    batch = random.sample(buffer, 16)
    states, rewards, following = zip(*batch, strict=True)
    states = torch.FloatTensor(states).to(device)
    following = torch.tensor(following, dtype=torch.float32).to(device)
    rewards = torch.tensor([float(r) for r in rewards], device=device)
    with torch.no_grad():
        target = rewards + 0.9 * net(following).squeeze(1)
    loss = F.mse_loss(net(states).squeeze(1), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.4f}")
