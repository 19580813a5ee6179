"""Four seasons learned one after the other without forgetting: weights are held where they mattered (Fisher information that adds up), a reservoir of old rows keeps its answers, heads by season; accuracy of every season after each."""
import torch
import torch.nn.functional as F
from torch import nn

SEASONS, COLUMNS, KINDS = 4, 20, 5
ROWS, EPOCHS, BATCH, LR = 600, 7, 30, 0.01
HOLD, FADE, JUDGED = 60.0, 0.9, 250
MEMORY, REPLAYED, ANSWERS = 80, 20, 0.5


def make_season(k, n, seed):
    """Rows around two middles for each kind; later seasons shift and turn the columns."""
    plan = torch.Generator().manual_seed(100 + k)
    middles = 1.3 * torch.randn(KINDS, 2, COLUMNS, generator=plan)
    turn = torch.linalg.qr(torch.eye(COLUMNS) + 0.3 * torch.randn(COLUMNS, COLUMNS, generator=plan))[0]
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, KINDS, (n,), generator=g)
    x = middles[y, torch.randint(0, 2, (n,), generator=g)] + 1.5 * torch.randn(n, COLUMNS, generator=g)
    return (x @ turn + 0.4 * k) * torch.linspace(0.6, 1.4, COLUMNS), y


class Almanac(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(COLUMNS, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, width), nn.ReLU())
        self.heads = nn.ModuleList([nn.Linear(width, KINDS) for _ in range(SEASONS)])

    def forward(self, x, season):
        return self.heads[season](self.body(x))

    def answer(self, x, seasons):
        """Each row by the head of its own season."""
        h = self.body(x)
        told = torch.stack([head(h) for head in self.heads], 1)
        return told[torch.arange(len(x)), seasons]


class Reservoir:
    """Every row that was ever trained on is in it with the same chance, with its season, kind and the answer it got then."""

    def __init__(self):
        self.x, self.y = torch.zeros(MEMORY, COLUMNS), torch.zeros(MEMORY, dtype=torch.long)
        self.season, self.told = torch.zeros(MEMORY, dtype=torch.long), torch.zeros(MEMORY, KINDS)
        self.seen = 0

    def put(self, x, y, season, told):
        for row, kind, answer in zip(x, y, told):
            at = self.seen if self.seen < MEMORY else int(torch.randint(0, self.seen + 1, (1,)))
            self.seen += 1
            if at < MEMORY:
                self.x[at], self.y[at], self.season[at], self.told[at] = row, kind, season, answer

    def draw(self):
        idx = torch.randint(0, min(self.seen, MEMORY), (REPLAYED,))
        return self.x[idx], self.y[idx], self.season[idx], self.told[idx]


def fisher(model, x, season):
    """Mean over rows of the squared gradient of an answer's log-likelihood; answers are drawn from the model."""
    model.eval()
    body = [*model.body.parameters()]
    sums = [torch.zeros_like(p) for p in body]
    rows = x[torch.randperm(len(x))[:JUDGED]]
    for row in rows:
        told = model(row.unsqueeze(0), season).log_softmax(1)
        drawn = torch.multinomial(told.detach().exp(), 1)
        for total, grad in zip(sums, torch.autograd.grad(told.gather(1, drawn).sum(), body)):
            total += grad**2
    return [total / len(rows) for total in sums]


@torch.no_grad()
def evaluate(model, seasons):
    """Accuracy and loss by season."""
    model.eval()
    accuracies, losses = [], []
    for k, (x, y) in enumerate(seasons):
        told = torch.cat([model(part, k) for part in x.split(50)])
        accuracies.append((told.argmax(1) == y).float().mean().item())
        losses.append(F.cross_entropy(told, y).item())
    return accuracies, losses


def main():
    torch.manual_seed(85)
    train = [make_season(k, ROWS, 10 + k) for k in range(SEASONS)]
    held = [make_season(k, 400, 20 + k) for k in range(SEASONS)]
    model, memory = Almanac(), Reservoir()
    importance, anchors, table = None, None, []
    for season, (x, y) in enumerate(train):
        optimizer = torch.optim.Adam(model.parameters(), lr=LR)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.75)
        for epoch in range(EPOCHS):
            model.train()
            sum_fit, sum_old, sum_held = 0.0, 0.0, 0.0
            for idx in torch.randperm(len(x)).split(BATCH):
                told = model(x[idx], season)
                fit = F.cross_entropy(told, y[idx])
                old = torch.zeros(())
                if season:
                    old_x, old_y, old_season, old_told = memory.draw()
                    again = model.answer(old_x, old_season)
                    old = F.cross_entropy(again, old_y) + ANSWERS * F.mse_loss(again, old_told)
                hold = torch.zeros(())
                if importance is not None:
                    for f, a, p in zip(importance, anchors, model.body.parameters()):
                        hold = hold + (f * (p - a) ** 2).sum()
                optimizer.zero_grad()
                (fit + old + 0.5 * HOLD * hold).backward()
                optimizer.step()
                if epoch == EPOCHS - 1:
                    memory.put(x[idx], y[idx], season, told.detach())
                sum_fit += fit.item() * len(idx)
                sum_old += old.item() * len(idx)
                sum_held += hold.item() * len(idx)
            scheduler.step()
            print(f"season {season} epoch {epoch} fit {sum_fit / len(x):.5f} old {sum_old / len(x):.5f} hold {sum_held / len(x):.6f}")
        new = fisher(model, x, season)
        importance = new if importance is None else [FADE * f + n for f, n in zip(importance, new)]
        anchors = [p.detach().clone() for p in model.body.parameters()]
        accuracies, losses = evaluate(model, held[: season + 1])
        table.append(accuracies)
        print(f"season {season} accuracies", *(f"{a:.4f}" for a in accuracies), "losses", *(f"{v:.4f}" for v in losses))
    forgotten = [max(row[k] for row in table if k < len(row)) - table[-1][k] for k in range(SEASONS - 1)]
    torch.save({"model": model.state_dict(), "importance": importance, "anchors": anchors, "table": table}, "almanac.pt")
    print(f"mean accuracy {sum(table[-1]) / SEASONS:.5f} forgotten {sum(forgotten) / len(forgotten):.5f} importance {sum(f.sum().item() for f in importance):.5f} remembered", *memory.season.bincount(minlength=SEASONS).tolist())


if __name__ == "__main__":
    main()
