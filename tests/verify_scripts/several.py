"""One training, in one process or in several: ``several.py [fault]``."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

fault = sys.argv[1] if len(sys.argv) > 1 else ""
several = "RANK" in os.environ
torch.manual_seed(3)
data = TensorDataset(torch.randn(48, 8), torch.randint(0, 2, (48,)))
model = nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 2))
trained, size, sampler = model, 8, None
if several:
    dist.init_process_group("gloo")
    if fault != "gradients apart":
        trained = nn.parallel.DistributedDataParallel(model)
    if fault != "all data in each":
        size //= dist.get_world_size()
        sampler = DistributedSampler(data, shuffle=False)
loader = DataLoader(data, size, sampler=sampler)
held_out = DataLoader(data, 16)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    model.train()
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(trained(x), y)
        if fault == "divided again" and several:
            loss = loss / dist.get_world_size()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        correct = sum((model(x).argmax(1) == y).sum().item() for x, y in held_out)
    if not several or dist.get_rank() == 0:
        print(f"correct {correct}")
        torch.save(model.state_dict(), "model.pt")
if several:
    dist.barrier()
    dist.destroy_process_group()
