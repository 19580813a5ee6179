"""A cellular automaton learns to grow a patch of moss from one cell and to heal it: a pool of earlier states, the worst of a batch sown anew, the best wounded, gradients scaled to length one, best weights by what has healed."""
import copy
import math

import torch
import torch.nn.functional as F
from torch import nn

SIDE, CHANNELS, HIDDEN = 14, 10, 40
POOL, BATCH, ROUNDS, REPORT = 64, 8, 120, 20
FIRE, LR, WOUNDED = 0.5, 6e-3, 2


def make_moss():
    """Colour and cover (4, SIDE, SIDE): a lumpy ring with a cushion in it."""
    axis = torch.linspace(-1.3, 1.3, SIDE)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    r, a = (x**2 + y**2).sqrt(), torch.atan2(y, x)
    ring = torch.sigmoid((0.16 - (r - 0.8 - 0.1 * torch.sin(3 * a)).abs()) * 14)
    cushion = torch.sigmoid((0.35 - ((x - 0.1) ** 2 + (y + 0.05) ** 2).sqrt()) * 14)
    cover = torch.maximum(ring, cushion)
    return torch.stack([ring * (0.5 + 0.4 * torch.sin(a)), cover * 0.8, cushion * 0.7, cover])


def make_seed():
    seed = torch.zeros(CHANNELS, SIDE, SIDE)
    seed[3:, SIDE // 2, SIDE // 2] = 1.0
    return seed


def alive(x):
    return F.max_pool2d(x[:, 3:4], 3, 1, 1) > 0.1


class Automaton(nn.Module):
    def __init__(self):
        super().__init__()
        slope = torch.tensor([[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]]) / 8
        same = torch.zeros(3, 3)
        same[1, 1] = 1.0
        self.register_buffer("filters", torch.stack([same, slope, slope.T]))
        self.hidden = nn.Conv2d(3 * CHANNELS, HIDDEN, 1)
        self.change = nn.Conv2d(HIDDEN, CHANNELS, 1)
        nn.init.zeros_(self.change.weight)
        nn.init.zeros_(self.change.bias)

    def forward(self, x, steps, g=None):
        """Each cell changes by what it sees of its neighbours, in every step with chance FIRE. Where nothing lives, all is nought."""
        for _ in range(steps):
            before = alive(x)
            seen = F.conv2d(x, self.filters.repeat(CHANNELS, 1, 1).unsqueeze(1), padding=1, groups=CHANNELS)
            hidden = self.hidden(seen).relu()
            fires = torch.rand(len(x), 1, SIDE, SIDE, generator=g) < FIRE
            x = x + self.change(hidden) * fires
            x = x * (before & alive(x))
        return x


def misfit(x, moss):
    return (x[:, :4] - moss).pow(2).flatten(1).mean(1)


def wound(x, g=None):
    """A disc of nothing somewhere in each of them."""
    axis = torch.linspace(-1, 1, SIDE)
    y, x0 = torch.meshgrid(axis, axis, indexing="ij")
    place = torch.rand(len(x), 2, 1, 1, generator=g) - 0.5
    size = 0.2 + 0.2 * torch.rand(len(x), 1, 1, generator=g)
    far = ((x0 - place[:, 0]) ** 2 + (y - place[:, 1]) ** 2).sqrt()
    return x * (far > size).unsqueeze(1)


@torch.no_grad()
def evaluate(model, seed, moss, n=8):
    """Misfit of what has grown, and of what has healed after a wound."""
    g = torch.Generator().manual_seed(9)
    grown = model(seed.repeat(n, 1, 1, 1), 20, g)
    healed = model(wound(grown, g), 14, g)
    return misfit(grown, moss).mean().item(), misfit(healed, moss).mean().item()


def main():
    torch.manual_seed(31)
    moss, seed = make_moss(), make_seed()
    model = Automaton()
    optimizer = torch.optim.Adam(model.parameters(), lr=LR)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [70, 100], 0.4)
    pool = seed.repeat(POOL, 1, 1, 1)
    best, kept, total, total_over = math.inf, None, 0.0, 0.0
    for t in range(1, ROUNDS + 1):
        idx = torch.randperm(POOL)[:BATCH]
        x = pool[idx]
        x = x[misfit(x, moss).argsort(descending=True)]
        x[0] = seed
        x[-WOUNDED:] = wound(x[-WOUNDED:])
        steps = int(torch.randint(10, 19, (1,)))
        x = model(x, steps)
        fit = misfit(x, moss).mean()
        over = (x - x.clamp(-2, 2)).abs().mean()
        optimizer.zero_grad()
        (fit + over).backward()
        for p in model.parameters():
            p.grad /= p.grad.norm() + 1e-8
        optimizer.step()
        scheduler.step()
        pool[idx] = x.detach()
        total += fit.item()
        total_over += over.item()
        if t % REPORT == 0:
            grown, healed = evaluate(model, seed, moss)
            if healed < best:
                best, kept = healed, copy.deepcopy(model.state_dict())
            print(f"round {t} misfit {total / REPORT:.5f} over {total_over / REPORT:.6f} pool {misfit(pool, moss).mean().item():.5f} grown {grown:.5f} healed {healed:.5f}")
            total, total_over = 0.0, 0.0
    model.load_state_dict(kept)
    torch.save({"model": kept, "healed": best}, "moss.pt")
    grown, healed = evaluate(model, seed, moss, 24)
    print(f"best healed {best:.5f} again: grown {grown:.5f} healed {healed:.5f}")


if __name__ == "__main__":
    main()
