# Reads molecules from a jsonl file, one a line:
#   {"z": [6, 6, 8], "bonds": [[0, 1, 1], [1, 2, 2]], "y": [0.12, -3.4]}
# z = atomic numbers, bonds = (from, to, order 1..4), y = targets
import json
import random

import torch

ATOMS = [1, 5, 6, 7, 8, 9, 14, 15, 16, 17, 35, 53]
NUM_ORDERS = 5     # 0 is the self loop


class Mol:
    def __init__(self, record):
        n = len(record['z'])
        self.x = torch.zeros(n, dtype=torch.long)
        for i, z in enumerate(record['z']):
            self.x[i] = ATOMS.index(z) + 1 if z in ATOMS else 0
        src, dst, kind = [], [], []
        for a, b, order in record['bonds']:
            src += [a, b]
            dst += [b, a]
            kind += [order, order]
        for i in range(n):
            src.append(i)
            dst.append(i)
            kind.append(0)
        self.edges = torch.tensor([src, dst], dtype=torch.long)
        self.kind = torch.tensor(kind, dtype=torch.long)
        self.y = torch.tensor(record['y'], dtype=torch.float32)

    def __len__(self):
        return len(self.x)


def read_file(path, limit=None):
    mols = []
    with open(path) as f:
        for k, line in enumerate(f):
            if limit is not None and k >= limit:
                break
            mols.append(Mol(json.loads(line)))
    return mols


def split(mols, seed=0, parts=(0.8, 0.1)):
    order = list(range(len(mols)))
    random.Random(seed).shuffle(order)
    a = int(len(mols) * parts[0])
    b = a + int(len(mols) * parts[1])
    pick = lambda ids: [mols[i] for i in ids]
    return pick(order[:a]), pick(order[a:b]), pick(order[b:])


def collate(mols):
    """Disjoint union of graphs."""
    xs, edges, kinds, graph, ys = [], [], [], [], []
    offset = 0
    for g, mol in enumerate(mols):
        xs.append(mol.x)
        edges.append(mol.edges + offset)
        kinds.append(mol.kind)
        for _ in range(len(mol)):
            graph.append(g)
        ys.append(mol.y)
        offset += len(mol)
    return {
        'x': torch.cat(xs),
        'edges': torch.cat(edges, dim=1),
        'kind': torch.cat(kinds),
        'graph': torch.tensor(graph),
        'y': torch.stack(ys),
        'size': len(mols),
    }
