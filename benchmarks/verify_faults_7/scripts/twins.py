"""Two views of each row must meet: a key encoder that follows slowly, a queue of old keys, then a probe on what was learnt."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SETTINGS = dict(width=24, out=12, queue=96, keep=0.95, heat=0.2, batch=16, rounds=4)


def rows(count, seed):
    g = torch.Generator().manual_seed(seed)
    kind = torch.randint(0, 6, (count,), generator=g)
    base = torch.randn(6, 20, generator=torch.Generator().manual_seed(77))
    return base[kind] + 0.7 * torch.randn(count, 20, generator=g), kind


def view(x):
    x = x + 0.3 * torch.randn_like(x)
    hide = torch.rand(x.shape) < 0.15
    scale = 0.8 + 0.4 * torch.rand(len(x), 1)
    return (x * scale).masked_fill(hide, 0.0)


class Encoder(nn.Sequential):
    def __init__(self, width, out):
        super().__init__(nn.Linear(20, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, out))


class Twins(nn.Module):
    def __init__(self, width, out, queue, keep, heat, **_):
        super().__init__()
        self.query, self.key = Encoder(width, out), Encoder(width, out)
        self.key.load_state_dict(self.query.state_dict())
        for p in self.key.parameters():
            p.requires_grad = False
        self.register_buffer("queue", F.normalize(torch.randn(queue, out), dim=1))
        self.register_buffer("at", torch.zeros((), dtype=torch.long))
        self.keep, self.heat = keep, heat

    @torch.no_grad()
    def follow(self):
        for k, q in zip(self.key.parameters(), self.query.parameters()):
            k.data = k.data * self.keep + q.data * (1 - self.keep)

    @torch.no_grad()
    def push(self, keys):
        at = int(self.at)
        self.queue[at : at + len(keys)] = keys
        self.at.fill_((at + len(keys)) % len(self.queue))

    def forward(self, a, b):
        q = F.normalize(self.query(a), dim=1)
        with torch.no_grad():
            self.follow()
            order = torch.randperm(len(b))
            k = F.normalize(self.key(b[order]), dim=1)[order.argsort()]
        same = (q * k).sum(1, keepdim=True)
        other = q @ self.queue.clone().detach().T
        logits = torch.cat([same, other], 1) / self.heat
        self.push(k)
        return logits, torch.zeros(len(q), dtype=torch.long)


class Meter:
    def __init__(self):
        self.total, self.count = 0.0, 0

    def add(self, value, n=1):
        self.total += value * n
        self.count += n

    @property
    def mean(self):
        return self.total / self.count


def probe(model, x, y):
    model.eval()
    with torch.no_grad():
        features = F.normalize(model.query(x), dim=1)
    model.train()
    sheet = nn.Linear(features.shape[1], 6)
    optimizer = torch.optim.SGD(sheet.parameters(), lr=2.0)
    for _ in range(15):
        optimizer.zero_grad()
        F.cross_entropy(sheet(features[:200]), y[:200]).backward()
        optimizer.step()
    with torch.no_grad():
        return (sheet(features[200:]).argmax(1) == y[200:]).float().mean().item()


def fit(settings):
    torch.manual_seed(41)
    x, _ = rows(320, 1)
    seen = rows(300, 2)
    model = Twins(**settings)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.2, momentum=0.9, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings["rounds"])
    for round_ in range(settings["rounds"]):
        loss_meter, top = Meter(), Meter()
        for rows_ in torch.randperm(len(x)).split(settings["batch"]):
            batch = x[rows_]
            logits, target = model(view(batch), view(batch))
            loss = F.cross_entropy(logits, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss_meter.add(loss.item(), len(batch))
            top.add((logits.argmax(1) == 0).float().mean().item(), len(batch))
        scheduler.step()
        print(f"round {round_} loss {loss_meter.mean:.4f} top {top.mean:.3f} probe {probe(model, *seen):.3f}")
        torch.save({"query": model.query.state_dict(), "key": model.key.state_dict(), "queue": model.queue}, "twins.pt")


if __name__ == "__main__":
    fit(SETTINGS)
