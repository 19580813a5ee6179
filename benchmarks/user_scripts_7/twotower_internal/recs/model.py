import torch
from torch import nn
import torch.nn.functional as F


class TwoTower(nn.Module):
    def __init__(self, n_users, n_items, dim, hidden, temperature, log_pop):
        super().__init__()
        self.user_emb = nn.Embedding(n_users, dim)
        self.item_emb = nn.Embedding(n_items + 1, dim, padding_idx=n_items)
        self.user_mlp = nn.Sequential(nn.Linear(2 * dim, hidden), nn.ReLU(), nn.Linear(hidden, dim))
        self.item_mlp = nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, dim))
        self.n_items, self.t, self.log_pop = n_items, temperature, log_pop

    def user_tower(self, user, hist):
        pooled, cnt = 0.0, 0.0
        for j in range(hist.size(1)):
            m = (hist[:, j] != self.n_items).float().unsqueeze(1)
            pooled = pooled + self.item_emb(hist[:, j]) * m
            cnt = cnt + m
        pooled = pooled / cnt.clamp(min=1.0)
        return F.normalize(self.user_mlp(torch.cat([self.user_emb(user), pooled], 1)), dim=1)

    def item_tower(self, item):
        return F.normalize(self.item_mlp(self.item_emb(item)), dim=-1)

    def forward(self, batch):
        u = self.user_tower(batch["user"], batch["hist"])
        p, n = self.item_tower(batch["pos"]), self.item_tower(batch["neg"])
        in_batch = u @ p.t() / self.t
        corr = torch.tensor(self.log_pop).float().to(u.device)
        in_batch = in_batch - corr[batch["pos"]].unsqueeze(0)
        hard = torch.einsum("bd,bkd->bk", u, n) / self.t
        target = torch.arange(u.size(0)).to(u.device)
        return F.cross_entropy(torch.cat([in_batch, hard], 1), target)
