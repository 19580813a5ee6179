"""Recommendations: embeddings, negatives drawn in every step, the BPR loss, an average of the weights for evaluation, early stopping."""

import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(59)
USERS, ITEMS, PATIENCE = 60, 90, 2


def history():
    generator = torch.Generator().manual_seed(5)
    taste = torch.randn(USERS, 6, generator=generator) @ torch.randn(6, ITEMS, generator=generator)
    liked = taste.topk(14, 1).indices
    order = torch.rand(liked.shape, generator=generator).argsort(1)
    liked = liked.gather(1, order)
    rows = torch.arange(USERS)[:, None].expand(-1, 11)
    return torch.stack([rows.flatten(), liked[:, :11].flatten()], 1), liked[:, 11:]


class Ranker(nn.Module):
    def __init__(self):
        super().__init__()
        self.user = nn.Embedding(USERS, 16)
        self.item = nn.Embedding(ITEMS, 16)
        self.bias = nn.Embedding(ITEMS, 1)
        self.drop = nn.Dropout(0.1)
        for table in (self.user, self.item):
            nn.init.normal_(table.weight, std=0.1)
        nn.init.zeros_(self.bias.weight)

    def forward(self, user, item):
        return (self.drop(self.user(user)) * self.item(item)).sum(-1) + self.bias(item).squeeze(-1)


def update(average, model, share=0.9):
    with torch.no_grad():
        for mine, theirs in zip(average.parameters(), model.parameters()):
            mine.mul_(share).add_(theirs, alpha=1 - share)


@torch.no_grad()
def recall(model, known, hidden):
    model.eval()
    every = torch.arange(ITEMS)
    found = 0
    for user in range(USERS):
        score = model(torch.full_like(every, user), every).masked_fill(known[user], float("-inf"))
        found += torch.isin(score.topk(10).indices, hidden[user]).sum().item()
    return found / hidden.numel()


def main():
    pairs, hidden = history()
    known = torch.zeros(USERS, ITEMS, dtype=torch.bool)
    known[pairs[:, 0], pairs[:, 1]] = True
    loader = DataLoader(TensorDataset(pairs[:, 0], pairs[:, 1]), batch_size=64, shuffle=True)
    model = Ranker()
    average = copy.deepcopy(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    best, waited = -1.0, 0
    for epoch in range(12):
        model.train()
        total = 0.0
        for user, liked in loader:
            other = torch.randint(0, ITEMS, liked.shape)
            again = torch.randint(0, ITEMS, liked.shape)
            other = torch.where(known[user, other], again, other)
            difference = model(user, liked) - model(user, other)
            size = model.user(user).pow(2).sum(1) + model.item(liked).pow(2).sum(1) + model.item(other).pow(2).sum(1)
            loss = -F.logsigmoid(difference).mean() + 1e-3 * size.mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            update(average, model)
            total += loss.item()
        found = recall(average, known, hidden)
        print(f"epoch {epoch}: loss {total / len(loader):.4f} recall {found:.4f}")
        if found > best:
            best, waited = found, 0
            torch.save(average.state_dict(), "rank.pt")
        else:
            waited += 1
            if waited > PATIENCE:
                print(f"stopped after epoch {epoch}")
                break
    model.load_state_dict(torch.load("rank.pt"))
    print(f"best {best:.4f} again {recall(model, known, hidden):.4f}")


main()
