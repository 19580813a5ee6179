import os
import tempfile

import torch
import torch.distributed as td


class Env:
    """rank/world of torchrun, or a group of one through a file, or nothing"""

    def __init__(self, force):
        self.world = int(os.environ.get('WORLD_SIZE', 1))
        self.rank = int(os.environ.get('RANK', 0))
        local = int(os.environ.get('LOCAL_RANK', 0))
        self.device = torch.device('cuda', local) if torch.cuda.is_available() else torch.device('cpu')
        self.on = self.world > 1 or force
        if self.device.type == 'cuda':
            torch.cuda.set_device(self.device)
        if self.on:
            if 'MASTER_ADDR' in os.environ:
                method = 'env://'
            else:
                self.tmp = tempfile.mkdtemp()
                method = 'file://' + os.path.join(self.tmp, 'store')
            td.init_process_group('nccl' if self.device.type == 'cuda' else 'gloo', init_method=method,
                                  rank=self.rank, world_size=self.world)

    @property
    def main(self):
        return self.rank == 0

    def print(self, *a):
        if self.main:
            print(*a, flush=True)

    def total(self, *values):
        """sum over the processes of a few Python numbers"""
        if not self.on:
            return values
        t = torch.tensor(values, dtype=torch.float64).to(self.device)
        td.all_reduce(t)
        return tuple(t.tolist())

    def close(self):
        if self.on:
            td.destroy_process_group()


class GatherGrad(torch.autograd.Function):
    """all_gather with gradient for in-batch negatives of all processes"""

    @staticmethod
    def forward(ctx, x):
        ctx.n = x.shape[0]
        if not td.is_initialized():
            return x.clone()
        out = [torch.empty_like(x) for _ in range(td.get_world_size())]
        td.all_gather(out, x.contiguous())
        return torch.cat(out)

    @staticmethod
    def backward(ctx, g):
        if not td.is_initialized():
            return g
        g = g.clone()
        td.all_reduce(g)
        r = td.get_rank()
        return g[r * ctx.n:(r + 1) * ctx.n]
