import torch
import torch.nn as nn

from featurization import ATOM_FDIM, BOND_FDIM


class MPNEncoder(nn.Module):
    """Directed message passing (Yang et al. 2019)."""

    def __init__(self, args):
        super(MPNEncoder, self).__init__()
        self.depth = args.depth
        self.hidden = args.hidden_size
        self.W_i = nn.Linear(ATOM_FDIM + BOND_FDIM, args.hidden_size, bias=False)
        self.W_h = nn.Linear(args.hidden_size, args.hidden_size, bias=False)
        self.W_o = nn.Linear(ATOM_FDIM + args.hidden_size, args.hidden_size)
        self.act = nn.ReLU()
        self.dropout = nn.Dropout(args.dropout)
        self.empty = nn.Parameter(torch.zeros(args.hidden_size), requires_grad=False)

    def forward(self, graph, device):
        f_atoms, f_bonds, a2b, b2a, b2revb = graph.to(device)
        inp = self.W_i(f_bonds)
        message = self.act(inp)
        for _ in range(self.depth - 1):
            a_message = message[a2b].sum(dim=1)          # atoms x hidden
            rev = message[b2revb]
            message = a_message[b2a] - rev
            message = self.act(inp + self.W_h(message))
            message = self.dropout(message)
        a_message = message[a2b].sum(dim=1)
        hidden = self.dropout(self.act(self.W_o(torch.cat([f_atoms, a_message], dim=1))))

        vecs = []
        for start, size in graph.a_scope:
            if size == 0:
                vecs.append(self.empty)
            else:
                cur = hidden.narrow(0, start, size)
                vecs.append(cur.sum(dim=0) / size)
        return torch.stack(vecs, dim=0)


class MoleculeModel(nn.Module):
    def __init__(self, args, n_tasks):
        super(MoleculeModel, self).__init__()
        self.encoder = MPNEncoder(args)
        self.ffn = nn.Sequential(
            nn.Dropout(args.dropout), nn.Linear(args.hidden_size, args.ffn_size), nn.ReLU(),
            nn.Dropout(args.dropout), nn.Linear(args.ffn_size, n_tasks))
        for p in self.parameters():
            if p.dim() == 1:
                nn.init.constant_(p, 0)
            else:
                nn.init.xavier_normal_(p)

    def forward(self, graph, device):
        return self.ffn(self.encoder(graph, device))
