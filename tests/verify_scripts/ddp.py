"""Two processes, gloo."""

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
data = TensorDataset(torch.randn(64, 8), torch.randint(0, 2, (64,)))
model = nn.parallel.DistributedDataParallel(nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    for x, y in DataLoader(data, 8, sampler=DistributedSampler(data)):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        dist.all_reduce(loss.detach())
        optimizer.step()
dist.barrier()
dist.destroy_process_group()
