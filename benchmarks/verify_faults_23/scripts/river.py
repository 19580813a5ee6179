"""Rectified flow: straight ways from noise to small pictures of a kind, followed by Euler steps."""
import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

SIDE, KINDS, NOTHING = 10, 4, 4
WIDTH, BATCH, EPOCHS, LR = 20, 32, 8, 2e-3
LEVELS, NO_KIND, DECAY, EULER, GUIDE = 8, 0.1, 0.98, 12, 1.5


def pictures(count, seed):
    """Bars, rings, crosses and checks, in whole levels from 0 to LEVELS - 1, and their kinds."""
    g = torch.Generator().manual_seed(seed)
    y, x = torch.meshgrid(torch.arange(SIDE).float(), torch.arange(SIDE).float(), indexing="ij")
    kinds = torch.randint(0, KINDS, (count,), generator=g)
    made = torch.zeros(count, 1, SIDE, SIDE)
    for i, kind in enumerate(kinds.tolist()):
        cx, cy = (3 + 4 * torch.rand(2, generator=g)).tolist()
        light = 0.6 + 0.4 * torch.rand(1, generator=g).item()
        if kind == 0:
            shape = ((x - cx).abs() < 1.2).float()
        elif kind == 1:
            shape = ((((x - cx) ** 2 + (y - cy) ** 2).sqrt() - 2.8).abs() < 0.8).float()
        elif kind == 2:
            shape = (((x - cx).abs() < 0.8) | ((y - cy).abs() < 0.8)).float()
        else:
            shape = ((x + y + int(cx)) % 3 < 1.5).float()
        made[i, 0] = (shape * light * (LEVELS - 1)).round()
    return made, kinds


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.kind = nn.Embedding(KINDS + 1, 2 * WIDTH)
        self.time = nn.Sequential(nn.Linear(16, 2 * WIDTH), nn.SiLU(), nn.Linear(2 * WIDTH, 2 * WIDTH))
        self.enter = nn.Conv2d(1, WIDTH, 3, padding=1)
        self.down = nn.Conv2d(WIDTH, 2 * WIDTH, 3, stride=2, padding=1)
        self.middle = nn.Conv2d(2 * WIDTH, 2 * WIDTH, 3, padding=1)
        self.up = nn.ConvTranspose2d(2 * WIDTH, WIDTH, 2, stride=2)
        self.leave = nn.Conv2d(2 * WIDTH, 1, 3, padding=1)

    def forward(self, x, t, kind):
        waves = t[:, None] * torch.exp(torch.linspace(0, 4, 8))[None]
        about = self.time(torch.cat([waves.sin(), waves.cos()], 1)) + self.kind(kind)
        one = F.silu(self.enter(x))
        two = F.silu(self.down(one) + about[:, :, None, None])
        two = two + F.silu(self.middle(two))
        return self.leave(torch.cat([one, F.silu(self.up(two))], 1))


def dequantised(levels):
    """Whole levels, each spread over its share of -1 to 1."""
    return (levels + torch.rand_like(levels)) / LEVELS * 2 - 1


def batch_of(levels, kinds):
    """The net's inputs, and the speeds that it should give."""
    x1 = dequantised(levels)
    x0 = torch.randn_like(x1)
    t = torch.sigmoid(torch.randn(len(x1)))
    lost = torch.rand(len(x1)) < NO_KIND
    kinds = kinds.masked_fill(lost, NOTHING)
    way = t[:, None, None, None]
    return ((1 - way) * x0 + way * x1, t, kinds), x1 - x0


@torch.no_grad()
def update(average, model):
    for slow, p in zip(average.parameters(), model.parameters()):
        slow.mul_(DECAY).add_(p, alpha=1 - DECAY)


@torch.no_grad()
def sample(model, kinds, generator):
    model.eval()
    x = torch.randn(len(kinds), 1, SIDE, SIDE, generator=generator)
    for i in range(EULER):
        t = torch.full((len(kinds),), i / EULER)
        free = model(x, t, torch.full_like(kinds, NOTHING))
        told = model(x, t, kinds)
        x = x + (free + GUIDE * (told - free)) / EULER
    return x


def distance(a, b, generator):
    """Sliced Wasserstein distance of two sets of as many pictures."""
    ways = F.normalize(torch.randn(SIDE * SIDE, 64, generator=generator), dim=0)
    return ((a.flatten(1) @ ways).sort(0).values - (b.flatten(1) @ ways).sort(0).values).abs().mean().item()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(23)
    levels, kinds = pictures(640, 1)
    held, held_kinds = pictures(96, 2)
    held = (held + 0.5) / LEVELS * 2 - 1
    model = Net()
    average = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.01)
    for epoch in range(1, EPOCHS + 1):
        model.train()
        for group in optimizer.param_groups:
            group["lr"] = LR * 0.5 * (1 + math.cos(math.pi * (epoch - 1) / EPOCHS))
        total = 0.0
        for picked in torch.randperm(len(levels)).split(BATCH):
            inputs, speeds = batch_of(levels[picked], kinds[picked])
            loss = (model(*inputs) - speeds).square().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            update(average, model)
            total += loss.item()
        g = torch.Generator().manual_seed(5)
        far = distance(sample(average, held_kinds, g), held, g)
        print(f"epoch {epoch} loss {total / (len(levels) / BATCH):.5f} distance {far:.5f}")
    torch.save({"model": model.state_dict(), "average": average.state_dict()}, "river.pt")


if __name__ == "__main__":
    main()
