"""Conformers of small random molecules with Morse + Coulomb energies, so that the net has
something QM-like to learn without the 4 GB download."""
from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.data import Dataset

ELEMENTS = [1, 6, 7, 8, 9]
RADIUS = np.array([0.32, 0.75, 0.71, 0.63, 0.64])
CHARGE = np.array([0.12, -0.05, -0.28, -0.33, -0.20])


def energy_and_forces(z, pos):
    z = torch.as_tensor(z)
    pos = torch.tensor(pos, dtype=torch.float64, requires_grad=True)
    i, j = torch.triu_indices(len(z), len(z), 1)
    r = (pos[i] - pos[j]).norm(dim=1)
    radius, charge = torch.as_tensor(RADIUS), torch.as_tensor(CHARGE)
    r0 = radius[z[i]] + radius[z[j]]
    morse = 2.0 * ((1 - torch.exp(-1.8 * (r - r0))) ** 2 - 1)
    e = (morse + 1.5 * charge[z[i]] * charge[z[j]] / r).sum()
    (g,) = torch.autograd.grad(e, pos)
    return e.item(), -g.numpy()


def random_molecule(rng, min_atoms, max_atoms):
    n = rng.randint(min_atoms, max_atoms + 1)
    z = rng.choice(5, n, p=[0.45, 0.35, 0.08, 0.09, 0.03])
    pos = [np.zeros(3)]
    while len(pos) < n:
        k = len(pos)
        parent = rng.randint(max(0, k - 4), k)
        step = rng.randn(3)
        cand = pos[parent] + step / np.linalg.norm(step) * (RADIUS[z[k]] + RADIUS[z[parent]]) * rng.uniform(0.95, 1.1)
        if min(np.linalg.norm(cand - p) for p in pos) > 0.6:
            pos.append(cand)
    return z, np.stack(pos)


@dataclass
class Batch:
    z: torch.Tensor
    pos: torch.Tensor
    edge_index: torch.Tensor
    batch: torch.Tensor
    energy: torch.Tensor
    forces: torch.Tensor

    def to(self, device):
        return Batch(*[getattr(self, k).to(device) for k in self.__dataclass_fields__])


class MoleculeDataset(Dataset):
    def __init__(self, n, min_atoms, max_atoms, cutoff, seed):
        rng = np.random.RandomState(seed)
        self.cutoff = cutoff
        self.items = []
        for _ in range(n):
            z, pos = random_molecule(rng, min_atoms, max_atoms)
            e, f = energy_and_forces(z, pos)
            self.items.append((z, pos, e, f))

    def __len__(self):
        return len(self.items)

    def neighbours(self, pos):
        src, dst = [], []
        for i in range(len(pos)):
            for j in range(len(pos)):
                if i != j and np.linalg.norm(pos[i] - pos[j]) < self.cutoff:
                    src.append(j)
                    dst.append(i)
        return np.array([src, dst])

    def __getitem__(self, idx):
        z, pos, e, f = self.items[idx]
        return z, pos, self.neighbours(pos), e, f


def collate(samples):
    z, pos, edges, batch, energy, forces = [], [], [], [], [], []
    offset = 0
    for g, (z_, pos_, edge_, e_, f_) in enumerate(samples):
        z.append(torch.tensor(z_))
        pos.append(torch.tensor(pos_, dtype=torch.float32))
        edges.append(torch.tensor(edge_) + offset)
        batch.append(torch.full((len(z_),), g))
        energy.append(e_)
        forces.append(torch.tensor(f_, dtype=torch.float32))
        offset += len(z_)
    return Batch(torch.cat(z), torch.cat(pos), torch.cat(edges, 1), torch.cat(batch),
                 torch.tensor(energy, dtype=torch.float32), torch.cat(forces))
