from __future__ import annotations

import torch
from torch import nn

from .config import ModelConfig


def build_mlp(sizes: list[int], dropout: float, last_activation: bool) -> nn.Sequential:
    layers: list[nn.Module] = []
    for i, (a, b) in enumerate(zip(sizes[:-1], sizes[1:])):
        layers.append(nn.Linear(a, b))
        if i < len(sizes) - 2 or last_activation:
            layers.append(nn.ReLU())
            if dropout > 0:
                layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers)


class DLRM(nn.Module):
    """Dense bottom MLP, one table per categorical feature, pairwise dots, top MLP."""

    def __init__(self, n_dense: int, cardinalities: list[int], cfg: ModelConfig) -> None:
        super().__init__()
        d = cfg.embedding_dim
        self.embeddings = nn.ModuleList([nn.Embedding(c, d) for c in cardinalities])
        for e in self.embeddings:
            nn.init.uniform_(e.weight, -0.05, 0.05)
        self.bottom = build_mlp([n_dense, *cfg.bottom_mlp, d], cfg.dropout, last_activation=True)
        n = len(cardinalities) + 1
        self.top = build_mlp([d + n * (n - 1) // 2, *cfg.top_mlp, 1], cfg.dropout, last_activation=False)

    def interact(self, vectors: list[torch.Tensor]) -> torch.Tensor:
        dots = []
        for i in range(len(vectors)):
            for j in range(i):
                dots.append((vectors[i] * vectors[j]).sum(dim=1, keepdim=True))
        return torch.cat(dots, dim=1)

    def forward(self, dense: torch.Tensor, cat: torch.Tensor) -> torch.Tensor:
        bottom = self.bottom(dense)
        vectors = [bottom]
        for i, table in enumerate(self.embeddings):
            vectors.append(table(cat[:, i]))
        z = torch.cat([bottom, self.interact(vectors)], dim=1)
        return torch.sigmoid(self.top(z)).squeeze(1)
