import torch
import torch.nn as nn


def scatter_sum(src, index, size):
    out = torch.zeros(size, src.size(1)).to(src.device)
    return out.index_add_(0, index, src)


def degree(index, size):
    one = torch.ones(index.size(0), 1).to(index.device)
    return scatter_sum(one, index, size).clamp(min=1)


class MessageLayer(nn.Module):
    """m_ij = MLP([h_i, h_j, e_ij]), mean over the neighbours, GRU as update (Gilmer et al. 2017, simplified)"""

    def __init__(self, dim, edge_dim):
        super().__init__()
        self.msg = nn.Sequential(nn.Linear(2 * dim + edge_dim, dim), nn.ReLU(), nn.Linear(dim, dim))
        self.gru = nn.GRUCell(dim, dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, h, edge_index, edge_attr):
        src, dst = edge_index
        m = self.msg(torch.cat([h[src], h[dst], edge_attr], dim=1))
        agg = scatter_sum(m, dst, h.size(0)) / degree(dst, h.size(0))
        return self.norm(self.gru(agg, h))


class GatedReadout(nn.Module):
    """gated sum of the node states of each graph"""

    def __init__(self, dim):
        super().__init__()
        self.gate = nn.Linear(dim, 1)
        self.proj = nn.Linear(dim, dim)

    def forward(self, h, batch):
        num_graphs = int(batch.max()) + 1
        out = []
        for g in range(num_graphs):
            hg = h[batch == g]
            a = torch.sigmoid(self.gate(hg))
            out.append((a * self.proj(hg)).sum(dim=0))
        return torch.stack(out)


class MPNN(nn.Module):
    def __init__(self, node_dim, edge_dim, dim=128, layers=5, dropout=0.1):
        super().__init__()
        self.embed = nn.Linear(node_dim, dim)
        self.layers = nn.ModuleList([MessageLayer(dim, edge_dim) for _ in range(layers)])
        self.readout = GatedReadout(dim)
        self.head = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Dropout(dropout), nn.Linear(dim, 1))

    def forward(self, x, edge_index, edge_attr, batch):
        h = torch.relu(self.embed(x))
        for layer in self.layers:
            h = h + layer(h, edge_index, edge_attr)
        return self.head(self.readout(h, batch)).squeeze(1)
