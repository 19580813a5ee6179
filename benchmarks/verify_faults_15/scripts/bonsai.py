"""Small pictures of four rare and common shapes: flat minima are sought, weights are pruned away little by little, values are rounded as they will be on the device."""
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

SIDE, KINDS = 10, 4


def pictures(count, seed, shares):
    g = torch.Generator().manual_seed(seed)
    kinds = torch.multinomial(torch.tensor(shares), count, replacement=True, generator=g)
    y, x = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    mid = torch.randint(3, SIDE - 3, (count, 2, 1, 1), generator=g)
    down, across = y - mid[:, 0], x - mid[:, 1]
    shapes = torch.stack([down.abs() + across.abs() <= 2, (down.abs() <= 2) & (across.abs() <= 1), (down == across) & (down.abs() <= 2), (down.abs() == 2) & (across.abs() <= 2)], 1)
    image = shapes[torch.arange(count), kinds].float() + 0.45 * torch.randn(count, SIDE, SIDE, generator=g)
    return image[:, None], kinds


class Rounded(nn.Module):
    """Rounds to 4 bits of a range that follows the greatest values seen in training."""

    def __init__(self, rate=0.05):
        super().__init__()
        self.rate = rate
        self.register_buffer("top", torch.tensor(0.0))

    def forward(self, x):
        if self.training:
            now = x.detach().amax()
            self.top = torch.where(self.top == 0, now, self.top + self.rate * (now - self.top))
        step = self.top / 15
        low = (x / step).round().clamp(0, 15) * step
        return x.clamp(min=0).minimum(self.top) + (low - x.clamp(min=0).minimum(self.top)).detach()


class Net(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, width, 3, padding=1, bias=False), nn.Conv2d(width, 2 * width, 3, padding=1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(width), nn.BatchNorm2d(2 * width)])
        self.rounds = nn.ModuleList([Rounded(), Rounded()])
        self.head = nn.Linear(2 * width * 4, KINDS)

    def forward(self, x):
        x = self.rounds[0](self.norms[0](self.first(x)).relu())
        x = F.max_pool2d(x, 2)
        x = self.rounds[1](self.norms[1](self.second(x)).relu())
        return self.head(F.adaptive_avg_pool2d(x, 2).flatten(1))


class Pruner:
    def __init__(self, net):
        self.weights = [m.weight for m in net.modules() if isinstance(m, (nn.Conv2d, nn.Linear))]
        self.masks = [torch.ones_like(w) for w in self.weights]

    @torch.no_grad()
    def prune(self, share):
        """The smallest ``share`` of all weights goes."""
        every = torch.cat([w.abs().flatten() for w in self.weights])
        level = every.sort().values[int(share * len(every))]
        self.masks = [(w.abs() >= level).float() for w in self.weights]
        self.apply()

    @torch.no_grad()
    def apply(self):
        for w, m in zip(self.weights, self.masks):
            w.mul_(m)

    def share(self):
        return 1 - sum(m.sum().item() for m in self.masks) / sum(m.numel() for m in self.masks)


def still(net, on):
    """Running statistics are taken of the first pass only."""
    for norm in net.norms:
        norm.momentum = 0.0 if on else 0.1
    for r in net.rounds:
        r.rate = 0.0 if on else 0.05


def judge(net, loader):
    net.eval()
    hits, seen, lost = torch.zeros(KINDS), torch.zeros(KINDS), 0.0
    with torch.no_grad():
        for x, y in loader:
            out = net(x)
            lost += F.cross_entropy(out, y, reduction="sum").item()
            hits += torch.bincount(y[out.argmax(1) == y], minlength=KINDS)
            seen += torch.bincount(y, minlength=KINDS)
    net.train()
    return lost / seen.sum().item(), (hits / seen).mean().item()


def main():
    torch.manual_seed(21)
    x, y = pictures(1200, 1, [0.55, 0.25, 0.12, 0.08])
    weights = (1 / torch.bincount(y, minlength=KINDS).double())[y]
    sampler = WeightedRandomSampler(weights, len(y), generator=torch.Generator().manual_seed(4))
    train = DataLoader(TensorDataset(x, y), 40, sampler=sampler)
    held = DataLoader(TensorDataset(*pictures(250, 2, [0.4, 0.3, 0.2, 0.1])), 100)
    net = Net()
    pruner = Pruner(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    radius, best, step = 0.05, 9.0, 0
    for epoch in range(10):
        total, sharp, count = 0.0, 0.0, 0
        for x, y in train:
            x = torch.where(torch.rand(len(x), 1, 1, 1) < 0.5, x.flip(3), x)
            loss = F.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            moves = []
            with torch.no_grad():
                norm = torch.stack([p.grad.norm() for p in net.parameters()]).norm()
                for p in net.parameters():
                    move = p.grad * (radius / (norm + 1e-12))
                    p.add_(move)
                    moves.append(move)
            still(net, True)
            optimizer.zero_grad()
            near = F.cross_entropy(net(x), y)
            near.backward()
            still(net, False)
            with torch.no_grad():
                for p, move in zip(net.parameters(), moves):
                    p.sub_(move)
            nn.utils.clip_grad_norm_(net.parameters(), 2.0)
            optimizer.step()
            step += 1
            if step % 10 == 0 and epoch >= 1:
                pruner.prune(0.7 * (1 - (1 - min(1.0, (step - 30) / 200)) ** 3))
            pruner.apply()
            total += loss.item() * len(x)
            sharp += (near - loss).item() * len(x)
            count += len(x)
        scheduler.step()
        lost, right = judge(net, held)
        print(f"epoch {epoch + 1} loss {total / count:.4f} sharp {sharp / count:.4f} pruned {pruner.share():.3f} held {lost:.4f} right {right:.4f}")
        if lost < best:
            best = lost
            torch.save({"net": net.state_dict(), "epoch": epoch}, "best.pt")
    torch.save({"net": net.state_dict(), "masks": pruner.masks, "optimizer": optimizer.state_dict()}, "last.pt")
    print(f"best {best:.4f} zeros {sum((w == 0).sum().item() for w in pruner.weights)}")


if __name__ == "__main__":
    main()
