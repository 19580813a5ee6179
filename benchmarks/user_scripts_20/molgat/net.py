import torch
import torch.nn as nn
import torch.nn.functional as F


def scatter_sum(values, index, size):
    out = torch.zeros(size, *values.shape[1:]).cuda() if values.is_cuda else torch.zeros(size, *values.shape[1:])
    return out.index_add(0, index, values)


def segment_softmax(score, index, size):
    # exponent sums: needs float32
    score = score.float()
    top = torch.full((size,), -1e9, device=score.device)
    top = top.scatter_reduce(0, index, score, reduce='amax')
    e = torch.exp(score - top[index])
    return e / (scatter_sum(e, index, size)[index] + 1e-12)


class Head(nn.Module):
    def __init__(self, dim, dim_head):
        super().__init__()
        self.lin = nn.Linear(dim, dim_head, bias=False)
        self.edge = nn.Embedding(5, dim_head)
        self.att = nn.Linear(3 * dim_head, 1)

    def forward(self, h, edges, kind):
        src, dst = edges[0], edges[1]
        h = self.lin(h)
        e = self.edge(kind)
        score = self.att(torch.cat([h[src], h[dst], e], dim=1)).squeeze(1)
        a = segment_softmax(F.leaky_relu(score, 0.2), dst, h.size(0))
        return scatter_sum((h[src] + e) * a.unsqueeze(1), dst, h.size(0))


class Layer(nn.Module):
    def __init__(self, dim, heads, dropout):
        super().__init__()
        self.heads = nn.ModuleList([Head(dim, dim // heads) for _ in range(heads)])
        self.mix = nn.Linear(dim, dim)
        self.bn1 = nn.BatchNorm1d(dim)
        self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Dropout(dropout), nn.Linear(2 * dim, dim))
        self.bn2 = nn.BatchNorm1d(dim)

    def forward(self, h, edges, kind):
        outs = []
        for head in self.heads:
            outs.append(head(h, edges, kind))
        h = self.bn1(h + self.mix(torch.cat(outs, dim=1)))
        return self.bn2(h + self.ff(h))


class MolGAT(nn.Module):
    def __init__(self, n_targets, dim=256, layers=6, heads=8, dropout=0.1):
        super().__init__()
        self.emb = nn.Embedding(13, dim)
        self.layers = nn.ModuleList([Layer(dim, heads, dropout) for _ in range(layers)])
        self.out = nn.Sequential(nn.Linear(2 * dim, dim), nn.ReLU(), nn.Linear(dim, n_targets))

    def forward(self, batch):
        h = self.emb(batch['x'])
        for layer in self.layers:
            h = layer(h, batch['edges'], batch['kind'])
        total = scatter_sum(h, batch['graph'], batch['size'])
        count = torch.bincount(batch['graph'], minlength=batch['size']).unsqueeze(1)
        return self.out(torch.cat([total / count, total / 10.0], dim=1))
