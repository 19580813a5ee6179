"""A table in memory, a net with a slow average, early stopping: the best average is what the test is made with."""

import copy
import json

import torch
from torch import nn

torch.manual_seed(8)
g = torch.Generator().manual_seed(100)
X = torch.randn(700, 9, generator=g) * torch.linspace(0.3, 4.0, 9) + torch.linspace(-2, 2, 9)
Y = (X[:, 0] * 2 + (X[:, 1] * X[:, 2]).sin() * 3 + 0.3 * X[:, 8] + 0.6 * torch.randn(700, generator=g)) * 10 + 50
GROUP = torch.randint(0, 7, (700,), generator=g)
Y = Y + GROUP * 4.0
cut = {"train": slice(0, 430), "valid": slice(430, 550), "test": slice(550, 700)}


class Scale(nn.Module):
    def __init__(self, x):
        super().__init__()
        self.register_buffer("mean", x.mean(0))
        self.register_buffer("std", x.std(0))

    def forward(self, x):
        return (x - self.mean) / self.std

    def back(self, x):
        return x * self.std + self.mean


class Table(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = Scale(X[cut["train"]])
        self.group = nn.Embedding(7, 4)
        self.layers = nn.Sequential(nn.Linear(13, 48), nn.BatchNorm1d(48), nn.SiLU(), nn.Dropout(0.1), nn.Linear(48, 24), nn.SiLU(), nn.Linear(24, 1))

    def forward(self, x, group):
        return self.layers(torch.cat([self.scale(x), self.group(group)], 1)).squeeze(1)


class Slow:
    def __init__(self, model, keep=0.93):
        self.module = copy.deepcopy(model).eval()
        self.keep = keep
        self.updates = 0

    def update(self, model):
        self.updates += 1
        keep = min(self.keep, (1 + self.updates) / (10 + self.updates))
        with torch.no_grad():
            for (name, a), b in zip(self.module.state_dict().items(), model.state_dict().values()):
                if a.dtype.is_floating_point:
                    a.mul_(keep).add_(b, alpha=1 - keep)
                else:
                    a.copy_(b)


def errors(model, part, goal, size=50):
    squares, absolute, count = 0.0, 0.0, 0
    was = model.training
    model.eval()
    with torch.no_grad():
        for x, group, y in zip(X[cut[part]].split(size), GROUP[cut[part]].split(size), Y[cut[part]].split(size)):
            miss = goal.back(model(x, group)) - y
            squares += miss.pow(2).sum().item()
            absolute += miss.abs().sum().item()
            count += len(y)
    model.train(was)
    return (squares / count) ** 0.5, absolute / count


def main():
    goal = Scale(Y[cut["train"]])
    model = Table()
    slow = Slow(model)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=4e-3, weight_decay=1e-4)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.3, patience=0)
    huber = nn.SmoothL1Loss(beta=0.5)
    x, group, y = X[cut["train"]], GROUP[cut["train"]], Y[cut["train"]]
    best, waited, kept, history = float("inf"), 0, None, []
    for epoch in range(20):
        model.train()
        order = torch.randperm(len(x))
        total = 0.0
        for rows in order.split(32):
            optimizer.zero_grad()
            loss = huber(model(x[rows], group[rows]), goal(y[rows]))
            loss.backward()
            nn.utils.clip_grad_value_(model.parameters(), 0.05)
            optimizer.step()
            slow.update(model)
            total += loss.item() * len(rows)
        rmse, mae = errors(slow.module, "valid", goal)
        plateau.step(rmse)
        history.append({"epoch": epoch, "loss": total / len(x), "rmse": rmse, "mae": mae, "lr": optimizer.param_groups[0]["lr"]})
        print("epoch {epoch:2d} loss {loss:.4f} rmse {rmse:.3f} mae {mae:.3f} lr {lr:.5f}".format(**history[-1]))
        if rmse < best - 0.2:
            best, waited = rmse, 0
            kept = copy.deepcopy(slow.module.state_dict())
            torch.save(kept, "keeper_best.pt")
        else:
            waited += 1
            if waited == 3:
                break
    slow.module.load_state_dict(kept)
    print("test rmse %.3f mae %.3f" % errors(slow.module, "test", goal))
    with open("keeper.json", "w") as out:
        json.dump(history, out)


main()
