"""Recommendations by factors: pairs in memory, negatives drawn by popularity, a penalty on what a batch touches, nDCG of items not seen."""

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(57)
USERS, ITEMS, NEGATIVES, SIZE = 80, 100, 4, 64


class Factors(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.user, self.item, self.bias = nn.Embedding(USERS, width), nn.Embedding(ITEMS, width), nn.Embedding(ITEMS, 1)
        nn.init.normal_(self.user.weight, std=0.3)
        nn.init.normal_(self.item.weight, std=0.3)
        nn.init.zeros_(self.bias.weight)

    def forward(self, user, item):
        mine, theirs = self.user(user), self.item(item)
        return (mine * theirs).sum(-1) + self.bias(item).squeeze(-1), mine, theirs


def interactions():
    generator = torch.Generator().manual_seed(5)
    taste, kind = torch.randn(USERS, 4, generator=generator), torch.randn(ITEMS, 4, generator=generator)
    likely = taste @ kind.t() + 0.8 * torch.randn(ITEMS, generator=generator)
    liked = likely + torch.randn(USERS, ITEMS, generator=generator) > 2.2
    held = liked & (torch.rand(USERS, ITEMS, generator=generator) < 0.25)
    return liked & ~held, held


def measure(model, known, held):
    with torch.no_grad():
        score = model.user.weight @ model.item.weight.t() + model.bias.weight.t()
        score = score.masked_fill(known, float("-inf"))
        top = score.topk(10, dim=1).indices
        hit = held.gather(1, top).float()
        discount = 1 / torch.log2(torch.arange(10) + 2.0)
        ideal = (torch.arange(10) < held.sum(1, keepdim=True)).float()
        some = held.any(1)
        return ((hit * discount).sum(1) / (ideal * discount).sum(1).clamp(min=1e-6))[some].mean().item(), hit.sum(1)[some].mean().item()


def main():
    known, held = interactions()
    pairs = known.nonzero()
    popular = (known.sum(0) + 1.0) ** 0.75
    model = Factors()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    best = -1.0
    for epoch in range(6):
        total = 0.0
        for rows in torch.randperm(len(pairs)).split(SIZE):
            user, liked = pairs[rows, 0], pairs[rows, 1]
            other = torch.multinomial(popular, len(rows) * NEGATIVES, replacement=True).view(len(rows), NEGATIVES)
            again = torch.randint(0, ITEMS, other.shape)
            other = torch.where(known[user[:, None], other], again, other)
            better, mine, theirs = model(user, liked)
            worse, _, others = model(user[:, None], other)
            loss = -F.logsigmoid(better[:, None] - worse).mean()
            loss = loss + 0.01 * (mine.pow(2).sum(1) + theirs.pow(2).sum(1) + others.pow(2).sum(2).mean(1)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(rows)
        gain, hits = measure(model, known, held)
        print(f"epoch {epoch}: loss {total / len(pairs):.4f} ndcg {gain:.4f} hits {hits:.3f}")
        if gain > best:
            best = gain
            torch.save({"factors": model.state_dict(), "ndcg": gain}, "factors.pt")


main()
