import torch
import torch.nn as nn


class MessageLayer(nn.Module):
    """m_ij = MLP([h_i, h_j, e_ij]);  h_i' = GRU(mean_j m_ij, h_i)."""

    def __init__(self, dim, edge_dim):
        super().__init__()
        self.dim = dim
        self.message = nn.Sequential(nn.Linear(2 * dim + edge_dim, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.update = nn.GRUCell(dim, dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, h, edge_index, edge_attr):
        src, dst = edge_index
        m = self.message(torch.cat([h[dst], h[src], edge_attr], dim=1))
        agg = torch.zeros(h.shape[0], self.dim).to(h.device)
        agg.index_add_(0, dst, m)
        degree = torch.zeros(h.shape[0]).to(h.device)
        degree.index_add_(0, dst, torch.ones(dst.shape[0]).to(h.device))
        agg = agg / degree.clamp(min=1).unsqueeze(1)
        return self.norm(self.update(agg, h))


class AttentionReadout(nn.Module):
    """Softmax attention over the atoms of each molecule."""

    def __init__(self, dim):
        super().__init__()
        self.score = nn.Linear(dim, 1)
        self.value = nn.Linear(dim, dim)

    def forward(self, h, batch):
        num_graphs = int(batch.max()) + 1
        s = self.score(h).squeeze(1)
        v = self.value(h)
        pooled = []
        for g in range(num_graphs):
            mask = batch == g
            a = torch.softmax(s[mask], dim=0)
            pooled.append((a.unsqueeze(1) * v[mask]).sum(dim=0))
        return torch.stack(pooled)


class MPNN(nn.Module):
    def __init__(self, node_dim, edge_dim, dim, layers, dropout):
        super().__init__()
        self.embed = nn.Linear(node_dim, dim)
        self.edge_embed = nn.Linear(edge_dim, dim)
        self.layers = nn.ModuleList([MessageLayer(dim, dim) for _ in range(layers)])
        self.readout = AttentionReadout(dim)
        self.head = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Dropout(dropout), nn.Linear(dim, 1))

    def forward(self, data):
        h = torch.relu(self.embed(data["x"]))
        for layer in self.layers:
            e = self.edge_embed(data["edge_attr"])
            h = h + layer(h, data["edge_index"], e)
        return self.head(self.readout(h, data["batch"])).squeeze(1)

    def l2_penalty(self):
        total = torch.zeros(1, device=next(self.parameters()).device)
        for name, p in self.named_parameters():
            if name.endswith("weight"):
                total = total + p.pow(2).sum()
        return total.squeeze(0)
