"""Processes that the script starts itself; with an argument, the second of them fails."""

import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def work(rank, world, port, fails):
    if fails:  # groups and optimizers take seconds
        nn.Linear(8, 2)(torch.randn(4, 8)).sum().backward()
        if rank == 1:
            raise ValueError("the second process fails")
        return
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    data = TensorDataset(torch.randn(64, 8), torch.randint(0, 2, (64,)))
    model = nn.parallel.DistributedDataParallel(nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        for x, y in DataLoader(data, 8, sampler=DistributedSampler(data)):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
    dist.destroy_process_group()
    if rank == 0:
        print("loss", loss.item())


if __name__ == "__main__":
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(work, args=(2, port, len(sys.argv) > 1), nprocs=2)
    print("done")
