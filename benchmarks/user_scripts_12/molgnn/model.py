import math

import torch
from torch import nn


class ShiftedSoftplus(nn.Module):
    def forward(self, x):
        return nn.functional.softplus(x) - math.log(2.0)


class RadialBasis(nn.Module):
    def __init__(self, n_rbf, cutoff):
        super().__init__()
        self.n_rbf, self.cutoff = n_rbf, cutoff

    def forward(self, r):
        centres = torch.linspace(0.0, self.cutoff, self.n_rbf).to(r.device)
        gamma = torch.tensor(10.0 / self.cutoff ** 2 * self.n_rbf).to(r.device)
        return torch.exp(-gamma * (r[:, None] - centres) ** 2)


class Interaction(nn.Module):
    def __init__(self, dim, n_rbf):
        super().__init__()
        self.filter = nn.Sequential(nn.Linear(n_rbf, dim), ShiftedSoftplus(), nn.Linear(dim, dim))
        self.pre = nn.Linear(dim, dim, bias=False)
        self.post = nn.Sequential(nn.Linear(dim, dim), ShiftedSoftplus(), nn.Linear(dim, dim))

    def forward(self, h, rbf, envelope, src, dst):
        w = self.filter(rbf) * envelope[:, None]
        msg = self.pre(h)[src] * w
        agg = torch.zeros_like(h).index_add_(0, dst, msg)
        return h + self.post(agg)


class Potential(nn.Module):
    """SchNet-like energy; forces are minus the gradient to the positions"""

    def __init__(self, n_elements, dim, n_blocks, n_rbf, cutoff):
        super().__init__()
        self.cutoff = cutoff
        self.embed = nn.Embedding(n_elements, dim)
        self.rbf = RadialBasis(n_rbf, cutoff)
        self.blocks = nn.ModuleList([Interaction(dim, n_rbf) for _ in range(n_blocks)])
        self.head = nn.Sequential(nn.Linear(dim, dim // 2), ShiftedSoftplus(), nn.Linear(dim // 2, 1))
        self.register_buffer("e_mean", torch.zeros(()))
        self.register_buffer("e_std", torch.ones(()))

    def forward(self, b, create_graph=False):
        pos = b.pos.requires_grad_(True)
        src, dst = b.edge_index
        r = (pos[src] - pos[dst]).norm(dim=1)
        envelope = 0.5 * (torch.cos(math.pi * r / self.cutoff) + 1.0)
        rbf = self.rbf(r)
        h = self.embed(b.z)
        for block in self.blocks:
            h = block(h, rbf, envelope, src, dst)
        atom = self.head(h).squeeze(1)
        energies = []
        for g in range(int(b.batch.max()) + 1):
            mine = atom[b.batch == g]
            energies.append(mine.sum() * self.e_std + self.e_mean * len(mine))
        energy = torch.stack(energies)
        (grad,) = torch.autograd.grad(energy.sum(), pos, create_graph=create_graph)
        return energy, -grad
