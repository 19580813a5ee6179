import torch
from torch import nn
import torch.nn.functional as F


def logq(count, items):
    """log of the sampling probability of in-batch negatives"""
    return (count[items] / count.sum()).log()


class TwoTower(nn.Module):
    def __init__(self, n_users, n_items, d, tau):
        super().__init__()
        self.user = nn.Embedding(n_users, d)
        self.bag = nn.EmbeddingBag(n_items, d, mode='mean')
        self.mix = nn.Sequential(nn.Linear(2 * d, 2 * d), nn.BatchNorm1d(2 * d), nn.ReLU(), nn.Linear(2 * d, d))
        self.item_proj = nn.Linear(d, d, bias=False)
        self.bias = nn.Embedding(n_items, 1)
        nn.init.zeros_(self.bias.weight)
        self.log_tau = nn.Parameter(torch.tensor(float(tau)).log())
        self.cold = nn.Parameter(torch.zeros(d))         # only used for users with empty history: often no gradient

    def items(self, ids=None):
        w = self.bag.weight if ids is None else F.embedding(ids, self.bag.weight)    # the bag's table is the item table
        return F.normalize(self.item_proj(w), dim=-1)

    def users(self, user, hist, off):
        h = self.bag(hist, off)
        if hist.numel() == 0:
            h = self.cold.expand(len(user), -1)
        return F.normalize(self.mix(torch.cat([self.user(user), h], 1)), dim=1)

    def forward(self, b):
        return self.users(b['user'], b['hist'], b['off']), self.items(b['item']), self.items(b['neg']), self.log_tau.exp()
