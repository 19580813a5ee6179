import torch
from torch import nn


def mlp(sizes, dropout=0.0, last=True):
    layers = []
    for i, (a, b) in enumerate(zip(sizes, sizes[1:])):
        layers.append(nn.Linear(a, b))
        if last or i < len(sizes) - 2:
            layers += [nn.BatchNorm1d(b), nn.ReLU()]
            if dropout:
                layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers)


class CrossNet(nn.Module):
    """DCN-v2: x_{l+1} = x_0 * (W x_l + b) + x_l"""

    def __init__(self, dim, layers):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(dim, dim) for _ in range(layers)])

    def forward(self, x0):
        x = x0
        for lin in self.layers:
            x = x0 * lin(x) + x
        return x


class ClickNet(nn.Module):
    def __init__(self, cards, n_dense, dim, bottom, top, cross_layers, dropout):
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(c, dim) for c in cards])
        self.history = nn.Embedding(cards[0] + 1, dim, padding_idx=0)
        for t in list(self.tables) + [self.history]:
            nn.init.uniform_(t.weight, -1e-2, 1e-2)
        self.bottom = mlp([n_dense] + list(bottom) + [dim])
        f = len(cards) + 2
        self.n_pairs = f * (f - 1) // 2
        self.cross = CrossNet(f * dim, cross_layers)
        self.top = mlp([f * dim + self.n_pairs] + list(top) + [1], dropout, last=False)

    def pool_history(self, hist):
        rows = []
        for i in range(hist.size(0)):
            ids = hist[i][hist[i] > 0]
            if len(ids) == 0:
                rows.append(torch.zeros(self.history.embedding_dim).to(hist.device))
            else:
                rows.append(self.history(ids).mean(0))
        return torch.stack(rows)

    def interact(self, v):
        dots = []
        f = v.size(1)
        for i in range(f):
            for j in range(i + 1, f):
                dots.append((v[:, i] * v[:, j]).sum(1))
        return torch.stack(dots, dim=1)

    def forward(self, dense, cat, hist):
        vecs = [self.bottom(dense), self.pool_history(hist)]
        for j, table in enumerate(self.tables):
            vecs.append(table(cat[:, j]))
        v = torch.stack(vecs, dim=1)
        x = torch.cat([self.cross(v.flatten(1)), self.interact(v)], dim=1)
        return self.top(x).squeeze(1)
