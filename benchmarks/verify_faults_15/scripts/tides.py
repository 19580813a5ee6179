"""Low, middle and high guess of the water at many stations: an ensemble with its own draw of rows for each member, tables of rare stations, stopping early, guesses widened at the end."""
import math

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STATIONS, MONTHS, NUMBERS = 60, 12, 5
LEVELS = (0.1, 0.5, 0.9)


def readings(count, seed):
    g, fixed = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(77)
    height, slope = torch.randn(STATIONS, generator=fixed), torch.randn(STATIONS, NUMBERS, generator=fixed) * 0.5
    station = (torch.rand(count, generator=g) ** 2 * STATIONS).long()
    month = torch.randint(MONTHS, (count,), generator=g)
    x = torch.randn(count, NUMBERS, generator=g) * torch.tensor([1.0, 3.0, 0.5, 10.0, 1.0]) + torch.tensor([0.0, 2.0, -1.0, 5.0, 0.0])
    plain = (x - torch.tensor([0.0, 2.0, -1.0, 5.0, 0.0])) / torch.tensor([1.0, 3.0, 0.5, 10.0, 1.0])
    y = height[station] + (slope[station] * plain).sum(1) + torch.sin(month * math.pi / 6)
    y = y + (0.3 + 0.4 * plain[:, 0].abs()) * torch.randn(count, generator=g)
    return station, month, x, y


class Member(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = nn.Linear(12 + NUMBERS, width), nn.Linear(width, len(LEVELS))
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        return self.second(self.drop(self.first(x).relu()))


class Guess(nn.Module):
    def __init__(self, members, mean, scale, width=96):
        super().__init__()
        self.station, self.month = nn.Embedding(STATIONS, 8, sparse=True), nn.Embedding(MONTHS, 4, sparse=True)
        self.members = nn.ModuleList(Member(width) for _ in range(members))
        self.register_buffer("mean", mean)
        self.register_buffer("scale", scale)

    def forward(self, station, month, x):
        """Members, rows, levels."""
        x = torch.cat([self.station(station), self.month(month), (x - self.mean) / self.scale], 1)
        return torch.stack([m(x) for m in self.members])


def pinball(out, y):
    """Loss of each member and row."""
    total = 0.0
    for i, level in enumerate(LEVELS):
        off = y - out[..., i]
        total = total + torch.maximum(level * off, (level - 1) * off)
    return total / len(LEVELS)


@torch.no_grad()
def guesses(net, data):
    """Low, middle and high guess of the whole ensemble, in order."""
    net.eval()
    out = torch.cat([net(*rows[:3]).mean(0) for rows in DataLoader(TensorDataset(*data), 200)])
    net.train()
    return out.sort(1).values


def judge(net, data):
    out, y = guesses(net, data), data[3]
    return pinball(out, y).mean().item()


def widen(net, data):
    """By how much the guesses have to be wider for 80 of 100."""
    out, y = guesses(net, data), data[3]
    miss = torch.maximum(out[:, 0] - y, y - out[:, 2]).sort().values
    return miss[min(len(miss) - 1, math.ceil(0.8 * (len(miss) + 1)) - 1)].item()


def main():
    torch.manual_seed(17)
    train, held, spare, test = readings(3000, 1), readings(300, 2), readings(300, 3), readings(500, 4)
    members = 6
    times = torch.poisson(torch.ones(members, len(train[3])), generator=torch.Generator().manual_seed(6))
    rows = TensorDataset(*train, torch.arange(len(train[3])))
    loader = DataLoader(rows, 64, shuffle=True, generator=torch.Generator().manual_seed(7))
    net = Guess(members, train[2].mean(0), train[2].std(0))
    tables = torch.optim.SparseAdam([*net.station.parameters(), *net.month.parameters()], lr=0.05)
    others = torch.optim.AdamW(net.members.parameters(), lr=0.03, weight_decay=0.02)
    plateaus = [torch.optim.lr_scheduler.ReduceLROnPlateau(o, factor=0.3, patience=1) for o in (tables, others)]
    best, kept, waited = math.inf, None, 0
    for epoch in range(30):
        total, count = 0.0, 0.0
        for station, month, x, y, at in loader:
            weight = times[:, at]
            loss = (pinball(net(station, month, x), y) * weight).sum() / weight.sum()
            tables.zero_grad()
            others.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.members.parameters(), 0.5)
            tables.step()
            others.step()
            total += loss.item() * weight.sum().item()
            count += weight.sum().item()
        lost = judge(net, held)
        for plateau in plateaus:
            plateau.step(lost)
        print(f"epoch {epoch + 1} loss {total / count:.4f} held {lost:.4f} lr {tables.param_groups[0]['lr']:.5f} {others.param_groups[0]['lr']:.5f}")
        if lost < best:
            best, waited = lost, 0
            kept = {k: v.clone() for k, v in net.state_dict().items()}
        else:
            waited += 1
            if waited == 4:
                break
    net.load_state_dict(kept)
    by = widen(net, spare)
    out, y = guesses(net, test), test[3]
    inside = ((y >= out[:, 0] - by) & (y <= out[:, 2] + by)).float().mean().item()
    wide = (out[:, 2] - out[:, 0]).mean().item() + 2 * by
    print(f"best {best:.4f} test {judge(net, test):.4f} wider by {by:.4f} inside {inside:.4f} width {wide:.4f}")
    torch.save({"net": net.state_dict(), "by": by}, "guess.pt")


if __name__ == "__main__":
    main()
