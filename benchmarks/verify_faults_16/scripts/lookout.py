"""Two towers that rank places for travellers: softmax over the batch with popularity correction, hard negatives mined every epoch, dwell time as a second task, both weighed by learned uncertainty."""
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

USERS, ITEMS, PAD, HISTORY, DIM = 400, 250, 0, 8, 24
HARD, POOL, BATCH, EPOCHS = 4, 25, 64, 8


def make_visits(seed=0):
    """Of each user a padded history, the places visited for training, one place held back, and the time spent (nan: unknown). Place 0 is the pad."""
    g = torch.Generator().manual_seed(seed)
    taste, place = torch.randn(USERS, 6, generator=g), torch.randn(ITEMS, 6, generator=g)
    fame = 1.2 * torch.randn(ITEMS, generator=g)
    score = 1.3 * taste @ place.t() + fame
    score[:, PAD] = -math.inf
    visited = (score - torch.log(-torch.log(torch.rand(USERS, ITEMS, generator=g)))).topk(HISTORY + 6).indices
    visited = visited.gather(1, torch.rand(visited.shape, generator=g).argsort(1))
    lengths = torch.randint(2, HISTORY + 1, (USERS, 1), generator=g)
    history = visited[:, :HISTORY].masked_fill(torch.arange(HISTORY) >= lengths, PAD)
    dwell = 0.5 * score.gather(1, visited) + 0.5 * torch.randn(visited.shape, generator=g)
    dwell[torch.rand(dwell.shape, generator=g) < 0.4] = math.nan
    about = place + 0.8 * torch.randn(ITEMS, 6, generator=g)
    return about, history, visited[:, HISTORY:-1], dwell[:, HISTORY:-1], visited[:, -1]


class TwoTower(nn.Module):
    def __init__(self, about):
        super().__init__()
        self.register_buffer("about", about)
        self.item = nn.Embedding(ITEMS, DIM, padding_idx=PAD)
        self.seen = nn.Embedding(ITEMS, DIM, padding_idx=PAD)
        self.item_tower = nn.Sequential(nn.Linear(DIM + 6, 48), nn.ReLU(), nn.Dropout(0.2), nn.Linear(48, DIM))
        self.user_tower = nn.Sequential(nn.Linear(DIM, 48), nn.ReLU(), nn.Dropout(0.2), nn.Linear(48, DIM))
        self.dwell = nn.Linear(2 * DIM, 1)
        self.log_temp = nn.Parameter(torch.tensor(math.log(0.1)))

    def items(self, ids):
        return F.normalize(self.item_tower(torch.cat([self.item(ids), self.about[ids]], -1)), dim=-1)

    def users(self, history):
        there = (history != PAD).unsqueeze(-1)
        pooled = (self.seen(history) * there).sum(1) / there.sum(1)
        return F.normalize(self.user_tower(pooled), dim=-1)


class UncertaintyLoss(nn.Module):
    """Kendall et al.: each task's loss weighed by exp(-s), plus s."""

    def __init__(self, tasks=2):
        super().__init__()
        self.s = nn.Parameter(torch.zeros(tasks))

    def forward(self, losses):
        return (torch.exp(-self.s) * losses + self.s).sum()


@torch.no_grad()
def mine(model, history, known):
    """For every user the POOL places that score highest and were not visited."""
    model.eval()
    scores = model.users(history) @ model.items(torch.arange(ITEMS)).t()
    scores = scores.scatter(1, known, -math.inf)
    scores[:, PAD] = -math.inf
    model.train()
    return scores.topk(POOL).indices


@torch.no_grad()
def evaluate(model, history, known, target, k=10):
    model.eval()
    recall, ndcg = 0.0, 0.0
    places = model.items(torch.arange(ITEMS))
    for rows in torch.arange(USERS).split(150):
        scores = model.users(history[rows]) @ places.t()
        scores = scores.scatter(1, known[rows], -math.inf)
        scores[:, PAD] = -math.inf
        rank = (scores > scores.gather(1, target[rows, None])).sum(1)
        recall += (rank < k).float().sum().item()
        ndcg += torch.where(rank < k, 1 / torch.log2(rank + 2.0), torch.zeros(())).sum().item()
    model.train()
    return recall / USERS, ndcg / USERS


def main():
    torch.manual_seed(2024)
    about, history, visited, dwell, target = make_visits()
    user = torch.arange(USERS).repeat_interleave(visited.shape[1])
    loader = DataLoader(TensorDataset(user, visited.flatten(), dwell.flatten()), BATCH, shuffle=True)
    known = torch.cat([history, visited], 1)
    log_q = torch.log((torch.bincount(visited.flatten(), minlength=ITEMS) + 1.0) / (visited.numel() + ITEMS))
    model, weigh = TwoTower(about), UncertaintyLoss()
    optimizer = torch.optim.AdamW([
        {"params": model.parameters(), "weight_decay": 0.01},
        {"params": weigh.parameters(), "weight_decay": 0.0, "lr": 0.02},
    ], lr=8e-3)  # fmt: skip
    best = 0.0
    for epoch in range(EPOCHS):
        pool = mine(model, history, known)
        sums, n = torch.zeros(2), 0
        for u, pos, spent in loader:
            hu, vi = model.users(history[u]), model.items(pos)
            hard = pool[u].gather(1, torch.randint(POOL, (len(u), HARD)))
            temp = model.log_temp.exp().clamp(min=0.02)
            inside = hu @ vi.t() / temp - log_q[pos]
            same = (pos[:, None] == pos[None]) | (u[:, None] == u[None])
            inside = inside.masked_fill(same & ~torch.eye(len(u), dtype=torch.bool), -math.inf)
            outside = (hu[:, None] * model.items(hard)).sum(-1) / temp - log_q[hard]
            rank_loss = F.cross_entropy(torch.cat([inside, outside], 1), torch.arange(len(u)))
            told = ~spent.isnan()
            guess = model.dwell(torch.cat([hu, vi], 1)).squeeze(1)
            dwell_loss = F.smooth_l1_loss(guess[told], spent[told])
            loss = weigh(torch.stack([rank_loss, dwell_loss]))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 2.0)
            optimizer.step()
            sums += torch.stack([rank_loss, dwell_loss]).detach() * len(u)
            n += len(u)
        recall, ndcg = evaluate(model, history, known, target)
        print(f"epoch {epoch + 1}: rank {sums[0] / n:.4f} dwell {sums[1] / n:.4f} s {weigh.s[0]:.3f} {weigh.s[1]:.3f} temp {model.log_temp.exp():.4f} recall@10 {recall:.4f} ndcg@10 {ndcg:.4f}")
        if ndcg > best:
            best = ndcg
            torch.save({"model": model.state_dict(), "weigh": weigh.state_dict()}, "lookout_best.pt")
    saved = torch.load("lookout_best.pt")
    model.load_state_dict(saved["model"])
    recall, ndcg = evaluate(model, history, known, target, k=20)
    print(f"best ndcg@10 {best:.4f}; at 20 recall {recall:.4f} ndcg {ndcg:.4f}")
    torch.save({"optimizer": optimizer.state_dict(), "pool": pool}, "lookout_last.pt")


if __name__ == "__main__":
    main()
