import torch
import torch.nn as nn
import torch.nn.functional as F

from registry import register


class Base(nn.Module):
    def __init__(self, n_users, n_items, dim=16, sparse=False, **unused):
        super().__init__()
        self.user = nn.Embedding(n_users, dim, sparse=sparse)
        self.item = nn.Embedding(n_items, dim, sparse=sparse)
        for e in (self.user, self.item):
            nn.init.normal_(e.weight, std=0.1)


@register('model')
class MF(Base):
    def forward(self, u, i):
        return (self.user(u) * self.item(i)).sum(-1)

    def all_items(self, u):
        return self.user(u) @ self.item.weight.t()


@register('model', 'neumf')
class NeuMF(Base):
    def __init__(self, *args, hidden=32, **kwargs):
        super().__init__(*args, **kwargs)
        d = self.user.embedding_dim
        self.net = nn.Sequential(nn.Linear(2 * d, hidden), nn.ReLU(), nn.Linear(hidden, 1))
        self.n_items = self.item.num_embeddings

    def forward(self, u, i):
        u, i = self.user(u), self.item(i)
        return (u * i).sum(-1) + self.net(torch.cat([u, i], -1)).squeeze(-1)

    def all_items(self, u):
        items = torch.arange(self.n_items).to(u.device)
        return self(u.unsqueeze(1).expand(-1, self.n_items), items.unsqueeze(0).expand(u.size(0), -1))


@register('loss')
def bpr(pos, neg, **kw):
    return -F.logsigmoid(pos.unsqueeze(1) - neg).mean(1)


@register('loss')
def sampled_softmax(pos, neg, temperature=0.5, **kw):
    z = torch.cat([pos.unsqueeze(1), neg], 1) / temperature
    return torch.logsumexp(z, 1) - z[:, 0]
