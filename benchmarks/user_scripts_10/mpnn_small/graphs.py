"""Synthetic 'molecules': random trees plus some ring closures, the target depends on degrees, types and triangles."""
import random

import torch
from torch.utils.data import Dataset

ATOMS = ['C', 'N', 'O', 'F', 'S', 'P', 'Cl']
BONDS = ['single', 'double', 'triple', 'aromatic']
CHARGE = {'C': 0.1, 'N': -0.4, 'O': -0.6, 'F': -0.3, 'S': 0.2, 'P': 0.5, 'Cl': -0.2}
ORDER = {'single': 1.0, 'double': 2.0, 'triple': 3.0, 'aromatic': 1.5}


def random_graph(rng):
    n = rng.randint(8, 28)
    atoms = [rng.choice(ATOMS) for _ in range(n)]
    bonds = {}
    for i in range(1, n):
        bonds[(rng.randrange(max(0, i - 4), i), i)] = rng.choice(BONDS)
    for _ in range(rng.randint(0, 4)):
        i, j = sorted(rng.sample(range(n), 2))
        bonds[(i, j)] = 'aromatic'
    y = 0.0
    deg = [0] * n
    for (i, j), b in bonds.items():
        deg[i] += 1
        deg[j] += 1
        y += ORDER[b] * CHARGE[atoms[i]] * CHARGE[atoms[j]]
    y += sum(0.05 * d * d for d in deg) + sum(CHARGE[a] for a in atoms) * 0.3
    return {'atoms': atoms, 'bonds': bonds, 'y': y}


def make_graphs(n, seed):
    rng = random.Random(seed)
    return [random_graph(rng) for _ in range(n)]


class GraphDataset(Dataset):
    def __init__(self, graphs, mean=None, std=None):
        self.graphs = graphs
        ys = torch.tensor([g['y'] for g in graphs])
        self.mean = ys.mean() if mean is None else mean
        self.std = ys.std() if std is None else std

    def __len__(self):
        return len(self.graphs)

    def __getitem__(self, idx):
        g = self.graphs[idx]
        x = torch.zeros(len(g['atoms']), len(ATOMS))
        for i, a in enumerate(g['atoms']):
            x[i, ATOMS.index(a)] = 1
        src, dst, feats = [], [], []
        for (i, j), b in g['bonds'].items():
            f = [1.0 if b == name else 0.0 for name in BONDS]
            src += [i, j]
            dst += [j, i]
            feats += [f, f]
        edge_index = torch.tensor([src, dst], dtype=torch.long)
        edge_attr = torch.tensor(feats)
        y = (torch.tensor(g['y']) - self.mean) / self.std
        return x, edge_index, edge_attr, y


def collate_graphs(samples):
    """one big disconnected graph, `batch` says which graph a node belongs to"""
    xs, eis, eas, ys, batch = [], [], [], [], []
    offset = 0
    for k, (x, ei, ea, y) in enumerate(samples):
        xs.append(x)
        eis.append(ei + offset)
        eas.append(ea)
        ys.append(y)
        batch.append(torch.full((x.size(0),), k, dtype=torch.long))
        offset += x.size(0)
    return torch.cat(xs), torch.cat(eis, dim=1), torch.cat(eas), torch.cat(batch), torch.stack(ys)
