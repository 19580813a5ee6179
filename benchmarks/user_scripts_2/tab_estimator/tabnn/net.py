import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, sizes, n_num, hidden, p):
        super().__init__()
        self.embs = nn.ModuleList([nn.Embedding(s, min(12, 2 + s // 4), max_norm=2.0) for s in sizes])
        width = sum(e.embedding_dim for e in self.embs) + n_num
        layers = []
        for h in hidden:
            layers += [nn.Linear(width, h), nn.BatchNorm1d(h), nn.SiLU(), nn.Dropout(p)]
            width = h
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(width, 1)

    def forward(self, num, cat):
        e = [emb(cat[:, j]) for j, emb in enumerate(self.embs)]
        return self.head(self.body(torch.cat(e + [num], 1))).squeeze(1)
