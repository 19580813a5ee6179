"""How long young trees last in the frost: Cox's partial likelihood with ties, risk sets by site, groups of columns that are shrunk to nothing by a proximal step each epoch, best weights by concordance once that is at its full strength, hazards by site saved beside them."""
import copy
import math

import torch
from torch import nn

SITES, GROUPS, SIZE, DAYS = 4, 10, 3, 40
EPOCHS, BATCH, LR, SHRINK, RAMP = 24, 80, 0.06, 6.0, 8


def make_trees(n, seed):
    """Columns, day, whether the tree died on it or was lost sight of, site. Four of the ten groups matter; sites differ in columns and in frost."""
    g = torch.Generator().manual_seed(seed)
    site = torch.randint(0, SITES, (n,), generator=g)
    x = torch.randn(n, GROUPS * SIZE, generator=g)
    x[:, 0] += 0.9 * (site.float() - 1.5)
    x[:, 9] += x[:, 10]
    x = x * torch.linspace(0.5, 3, GROUPS * SIZE) + torch.linspace(-2, 4, GROUPS * SIZE)
    z = (x - torch.linspace(-2, 4, GROUPS * SIZE)) / torch.linspace(0.5, 3, GROUPS * SIZE)
    risk = 0.9 * z[:, 0] - 0.7 * z[:, 1] * z[:, 4] + 0.6 * (z[:, 9] - z[:, 11]) + 0.8 * z[:, 15].abs()
    frost = torch.tensor([0.03, 0.012, 0.005, 0.002])[site]
    died = (-torch.rand(n, generator=g).log() / (frost * risk.exp())) ** 0.8
    lost = 8 + 50 * torch.rand(n, generator=g)
    day = torch.minimum(died, lost).ceil().clamp(1, DAYS)
    return x, day, (died <= lost) & (died.ceil() <= DAYS), site


class Risk(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.first = nn.Linear(GROUPS * SIZE, width)
        self.rest = nn.Sequential(nn.Tanh(), nn.Dropout(0.15), nn.Linear(width, 16), nn.Tanh(), nn.Linear(16, 1, bias=False))

    def forward(self, x):
        return self.rest(self.first(x)).squeeze(1)


def partial_likelihood(risk, day, dead, site):
    """Under risk at a death: the trees of that site that last as long or longer. Mean over the deaths."""
    total = 0.0
    for s in range(SITES):
        own = site == s
        r, d, e = risk[own], day[own], dead[own]
        under = d.unsqueeze(0) >= d.unsqueeze(1)
        logs = r.unsqueeze(0).expand(len(r), -1).masked_fill(~under, -math.inf).logsumexp(1)
        total = total + ((logs - r) * e).sum()
    return total / dead.sum().clamp(min=1)


@torch.no_grad()
def shrink(weight, by):
    """The proximal step of the group lasso, in place."""
    for k in range(GROUPS):
        part = weight[:, k * SIZE : (k + 1) * SIZE]
        part.mul_((1 - by / part.norm().clamp(min=1e-9)).clamp(min=0))


def groups_left(model):
    return int((model.first.weight.view(-1, GROUPS, SIZE).norm(dim=(0, 2)) > 0).sum())


@torch.no_grad()
def evaluate(model, x, day, dead, site):
    """Partial likelihood, and concordance within the sites."""
    model.eval()
    risk = model(x)
    good, pairs = 0.0, 0
    for i in dead.nonzero().flatten().tolist():
        other = risk[(site == site[i]) & (day > day[i])]
        good += (other < risk[i]).sum().item() + 0.5 * (other == risk[i]).sum().item()
        pairs += len(other)
    return partial_likelihood(risk, day, dead, site).item(), good / pairs


@torch.no_grad()
def hazards(model, x, day, dead, site):
    """Breslow's cumulated hazard by site and day."""
    model.eval()
    weight = model(x).exp()
    table = torch.zeros(SITES, DAYS + 1)
    for s in range(SITES):
        for d in range(1, DAYS + 1):
            under = weight[(site == s) & (day >= d)].sum()
            table[s, d] = table[s, d - 1] + ((site == s) & (day == d) & dead).sum() / under.clamp(min=1e-6)
    return table


def main():
    torch.manual_seed(52)
    train, held = make_trees(1200, 1), make_trees(500, 2)
    mean, std = train[0].mean(0), train[0].std(0)
    train, held = ((x - mean, *others) for x, *others in (train, held))
    train, held = ((x / std, *others) for x, *others in (train, held))
    model = Risk()
    optimizer = torch.optim.SGD([{"params": model.first.parameters()}, {"params": model.rest.parameters(), "weight_decay": 1e-3}], lr=LR, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * (len(train[0]) // BATCH), eta_min=LR / 3)
    best, kept, kept_at = 0.0, None, -1
    for epoch in range(EPOCHS):
        model.train()
        strength = SHRINK * min(1.0, epoch / RAMP)
        total = 0.0
        for idx in torch.randperm(len(train[0])).split(BATCH):
            x, day, dead, site = (part[idx] for part in train)
            loss = partial_likelihood(model(x), day, dead, site)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            scheduler.step()
            total += loss.item() * len(idx)
        shrink(model.first.weight, scheduler.get_last_lr()[0] * strength)
        held_loss, concordance = evaluate(model, *held)
        if epoch >= RAMP and concordance > best:
            best, kept, kept_at = concordance, copy.deepcopy(model.state_dict()), epoch
        print(f"epoch {epoch} strength {strength:.4f} loss {total / len(train[0]):.5f} held {held_loss:.5f} concordance {concordance:.5f} groups {groups_left(model)}")
    model.load_state_dict(kept)
    table = hazards(model, *train)
    torch.save({"model": model.state_dict(), "hazards": table, "mean": mean, "std": std, "epoch": kept_at}, "frost.pt")
    with torch.no_grad():
        lasts = (-table[held[3], 20] * model(held[0]).exp()).exp()
    known = held[2] | (held[1] > 20)
    brier = (lasts - (held[1] > 20).float())[known].pow(2).mean().item()
    print(f"best epoch {kept_at} concordance {best:.5f} groups {groups_left(model)} brier at day 20 {brier:.5f}")


if __name__ == "__main__":
    main()
