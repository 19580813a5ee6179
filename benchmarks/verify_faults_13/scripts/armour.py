"""A small net is hardened against an attacker: examples are moved up the loss, each step looks at the sharpest point nearby, the soft labels agree."""
import copy
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

RADIUS, STRIDE, ATTACKS = 0.15, 0.06, 3
SHARP, AGREE = 0.05, 2.0


def spirals(count, seed):
    g = torch.Generator().manual_seed(seed)
    kind = torch.randint(0, 3, (count,), generator=g)
    r = torch.rand(count, generator=g) * 0.9 + 0.1
    turn = 4 * r + 2 * math.pi * kind / 3 + 0.25 * torch.randn(count, generator=g)
    plane = torch.stack([r * turn.cos(), r * turn.sin()], 1)
    return torch.cat([plane, 0.3 * torch.randn(count, 4, generator=g)], 1), kind


class Net(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.enter = nn.Linear(6, width)
        self.norm = nn.BatchNorm1d(width)
        self.middle = nn.Linear(width, width)
        self.drop = nn.Dropout(0.1)
        self.leave = nn.Linear(width, 3)

    def forward(self, x):
        h = F.silu(self.norm(self.enter(x)))
        return self.leave(self.drop(F.silu(self.middle(h))))


def attack(net, x, steps):
    """The point within reach at which the answer changes most."""
    was = net.training
    net.eval()
    with torch.no_grad():
        calm = net(x).softmax(1)
    moved = x + 0.001 * torch.randn_like(x)
    for _ in range(steps):
        moved.requires_grad_(True)
        apart = F.kl_div(net(moved).log_softmax(1), calm, reduction="sum")
        (slope,) = torch.autograd.grad(apart, moved)
        moved = moved.detach() + STRIDE * slope.sign()
        moved = x + (moved - x).clamp(-RADIUS, RADIUS)
    net.train(was)
    return moved.detach()


def losses(net, x, y, moved):
    plain = net(x)
    harsh = net(moved)
    return F.cross_entropy(plain, y), F.kl_div(harsh.log_softmax(1), plain.softmax(1), reduction="batchmean")


class Sharp:
    """Goes to the sharpest point nearby, and back."""

    def __init__(self, net):
        self.params = [p for p in net.parameters()]
        self.kept = []

    @torch.no_grad()
    def up(self):
        size = torch.stack([(p.abs() * p.grad).norm() for p in self.params]).norm() + 1e-12
        self.kept = []
        for p in self.params:
            way = p.square() * p.grad * (SHARP / size)
            p.add_(way)
            self.kept.append(way)

    @torch.no_grad()
    def down(self):
        for p, way in zip(self.params, self.kept):
            p.sub_(way)


def still(net, on):
    for m in net.modules():
        if isinstance(m, nn.BatchNorm1d):
            m.momentum = 0.0 if on else 0.1


def judge(net, data):
    net.eval()
    calm = hard = 0
    for x, y in data:
        with torch.no_grad():
            calm += (net(x).argmax(1) == y).sum().item()
        moved = attack(net, x, 5)
        with torch.no_grad():
            hard += (net(moved).argmax(1) == y).sum().item()
    return calm / len(data.dataset), hard / len(data.dataset)


def main():
    torch.manual_seed(4)
    train = DataLoader(TensorDataset(*spirals(600, 1)), 60, shuffle=True)
    held = DataLoader(TensorDataset(*spirals(200, 2)), 100)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.9, nesterov=True, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.3, total_steps=8 * len(train))
    sharp = Sharp(net)
    best, best_net = 0.0, None
    for epoch in range(8):
        weight = AGREE * min(1.0, epoch / 3)
        net.train()
        shown = []
        for x, y in train:
            moved = attack(net, x, ATTACKS)
            right, agree = losses(net, x, y, moved)
            optimizer.zero_grad()
            (right + weight * agree).backward()
            sharp.up()
            still(net, True)
            second = losses(net, x, y, moved)
            optimizer.zero_grad()
            (second[0] + weight * second[1]).backward()
            still(net, False)
            sharp.down()
            nn.utils.clip_grad_norm_(net.parameters(), 2.0)
            optimizer.step()
            schedule.step()
            shown.append((right.item(), agree.item()))
        calm, hard = judge(net, held)
        if hard > best:
            best, best_net = hard, copy.deepcopy(net.state_dict())
        mean = [sum(s) / len(s) for s in zip(*shown)]
        print(f"{epoch}: right {mean[0]:.4f} agree {mean[1]:.5f} calm {calm:.3f} hard {hard:.3f}")
    torch.save({"net": best_net, "hard": best, "last": net.state_dict()}, "armour.pt")


if __name__ == "__main__":
    main()
