import torch
from torch import nn
import torch.nn.functional as F


def mlp(sizes):
    layers = []
    for a, b in zip(sizes[:-1], sizes[1:]):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class ItemTower(nn.Module):
    def __init__(self, n_items, genres, year, dim, hidden):
        super().__init__()
        # +1: id 0 is padding
        self.emb = nn.Embedding(n_items + 1, dim, padding_idx=0, sparse=True)
        # plain attributes, we do not want them in the checkpoint
        self.genres = torch.from_numpy(genres)
        self.year = torch.from_numpy((year - 1990.0) / 20.0)
        self.mlp = mlp([dim + genres.shape[1] + 1] + list(hidden))

    def forward(self, items):
        dev = self.emb.weight.device
        g = self.genres.to(dev)[items]
        y = self.year.to(dev)[items].unsqueeze(1)
        x = torch.cat([self.emb(items + 1), g, y], dim=1)
        return F.normalize(self.mlp(x), dim=1)


class UserTower(nn.Module):
    def __init__(self, n_users, item_emb, dim, hidden):
        super().__init__()
        self.emb = nn.Embedding(n_users, dim, sparse=True)
        self.item_emb = item_emb  # shared with the item tower
        self.mlp = mlp([2 * dim] + list(hidden))

    def forward(self, users, hist):
        mask = (hist > 0).float().unsqueeze(-1)
        h = (self.item_emb(hist) * mask).sum(1) / mask.sum(1).clamp(min=1.0)
        return F.normalize(self.mlp(torch.cat([self.emb(users), h], dim=1)), dim=1)


class TwoTower(nn.Module):
    def __init__(self, inter, cfg):
        super().__init__()
        self.items = ItemTower(inter.n_items, inter.genres, inter.year, cfg["embedding_dim"], cfg["hidden"])
        self.users = UserTower(inter.n_users, self.items.emb, cfg["embedding_dim"], cfg["hidden"])
        self.temperature = cfg["temperature"]

    def forward(self, users, hist, items, log_q):
        u = self.users(users, hist)
        v = self.items(items)
        logits = u @ v.t() / self.temperature - log_q[items]  # logQ correction
        # other rows with the same positive are no negatives
        same = items.unsqueeze(0) == items.unsqueeze(1)
        same = same & ~torch.eye(len(items), dtype=torch.bool).to(items.device)
        logits = logits.masked_fill(same, -1e9)
        labels = torch.arange(len(items)).to(logits.device)
        return F.cross_entropy(logits, labels)
