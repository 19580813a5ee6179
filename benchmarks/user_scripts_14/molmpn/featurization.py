import torch

from molecules import ELEMENTS

ATOM_FDIM = len(ELEMENTS) + 1 + 6 + 4 + 6 + 2
BOND_FDIM = 4 + 2


def onek(value, choices):
    enc = [0] * (len(choices) + 1)
    enc[choices.index(value) if value in choices else -1] = 1
    return enc


def atom_features(atom, degree):
    el, charge, n_h, aromatic = atom
    return (onek(el, ELEMENTS) + onek(degree, [0, 1, 2, 3, 4]) + onek(charge, [-1, 0, 1])
            + onek(n_h, [0, 1, 2, 3, 4]) + [aromatic, 0.01 * ELEMENTS.index(el)])


def bond_features(order, in_ring_hint):
    return onek(order, [1, 2, 3]) + [int(order > 1), in_ring_hint]


class MolGraph(object):
    """Directed bonds: every bond appears twice, b and its reverse."""

    def __init__(self, mol):
        self.n_atoms = len(mol['atoms'])
        self.f_atoms, self.f_bonds = [], []
        self.a2b = [[] for _ in range(self.n_atoms)]     # bonds that come in
        self.b2a, self.b2revb = [], []                   # origin, reverse
        degree = [0] * self.n_atoms
        for i, j, _ in mol['bonds']:
            degree[i] += 1
            degree[j] += 1
        for i, a in enumerate(mol['atoms']):
            self.f_atoms.append(atom_features(a, degree[i]))
        for i, j, order in mol['bonds']:
            fb = bond_features(order, int(degree[i] > 1 and degree[j] > 1))
            self.f_bonds.append(self.f_atoms[i] + fb)
            self.f_bonds.append(self.f_atoms[j] + fb)
            b1 = len(self.b2a)
            b2 = b1 + 1
            self.a2b[j].append(b1)
            self.b2a.append(i)
            self.b2revb.append(b2)
            self.a2b[i].append(b2)
            self.b2a.append(j)
            self.b2revb.append(b1)
        self.n_bonds = len(self.b2a)


class BatchMolGraph(object):
    """All molecules of a batch as one graph. Index 0 is padding, for atoms and for bonds."""

    def __init__(self, graphs):
        f_atoms = [[0] * ATOM_FDIM]
        f_bonds = [[0] * (ATOM_FDIM + BOND_FDIM)]
        a2b, b2a, b2revb = [[]], [0], [0]
        self.a_scope = []
        na, nb = 1, 1
        for g in graphs:
            f_atoms.extend(g.f_atoms)
            f_bonds.extend(g.f_bonds)
            for a in range(g.n_atoms):
                a2b.append([b + nb for b in g.a2b[a]])
            for b in range(g.n_bonds):
                b2a.append(na + g.b2a[b])
                b2revb.append(nb + g.b2revb[b])
            self.a_scope.append((na, g.n_atoms))
            na += g.n_atoms
            nb += g.n_bonds
        width = max(1, max(len(x) for x in a2b))
        self.f_atoms = torch.FloatTensor(f_atoms)
        self.f_bonds = torch.FloatTensor(f_bonds)
        self.a2b = torch.LongTensor([x + [0] * (width - len(x)) for x in a2b])
        self.b2a = torch.LongTensor(b2a)
        self.b2revb = torch.LongTensor(b2revb)

    def to(self, device):
        return (self.f_atoms.to(device), self.f_bonds.to(device), self.a2b.to(device),
                self.b2a.to(device), self.b2revb.to(device))
