import torch
import torch.nn as nn


class FeatureEmbedding(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(v, dim) for v in vocab])
        for t in self.tables:
            nn.init.normal_(t.weight, std=0.01)

    def forward(self, x):
        return torch.stack([table(x[:, i]) for i, table in enumerate(self.tables)], dim=1)


class FeatureLinear(nn.Module):
    def __init__(self, vocab, n_dense):
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(v, 1) for v in vocab])
        self.dense = nn.Linear(n_dense, 1)
        for t in self.tables:
            nn.init.zeros_(t.weight)

    def forward(self, sparse, dense):
        out = self.dense(dense)
        for i, table in enumerate(self.tables):
            out = out + table(sparse[:, i])
        return out


class FMInteraction(nn.Module):
    def forward(self, emb):
        n_fields = emb.size(1)
        out = 0
        for i in range(n_fields):
            for j in range(i + 1, n_fields):
                out = out + (emb[:, i] * emb[:, j]).sum(dim=1, keepdim=True)
        return out


class MLP(nn.Module):
    def __init__(self, in_dim, hidden, dropout):
        super().__init__()
        layers = []
        for h in hidden:
            layers += [nn.Linear(in_dim, h), nn.BatchNorm1d(h), nn.ReLU(), nn.Dropout(dropout)]
            in_dim = h
        layers.append(nn.Linear(in_dim, 1))
        self.net = nn.Sequential(*layers)

    def forward(self, x):
        return self.net(x)


class DeepFM(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        vocab = list(cfg['vocab'].values())
        self.linear = FeatureLinear(vocab, cfg['n_dense'])
        self.embedding = FeatureEmbedding(vocab, cfg['embed_dim'])
        self.fm = FMInteraction()
        self.mlp = MLP(len(vocab) * cfg['embed_dim'] + cfg['n_dense'], cfg['hidden'], cfg['dropout'])

    def forward(self, sparse, dense):
        emb = self.embedding(sparse)
        deep = torch.cat([emb.flatten(1), dense], dim=1)
        logit = self.linear(sparse, dense) + self.fm(emb) + self.mlp(deep)
        return torch.sigmoid(logit).squeeze(1)
