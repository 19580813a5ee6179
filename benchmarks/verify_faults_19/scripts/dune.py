"""GAN with gradient penalty for profiles of dunes of four kinds: three steps of the critic for one of the generator, spread over the batch shown to the critic, averaged generator for the pictures, rates that fall to nought."""
import copy

import torch
from torch import nn

POINTS, KINDS, NOISE = 32, 4, 12
STEPS, CRITIC, BATCH, LR = 360, 3, 64, 1e-3
PENALTY, DECAY = 10.0, 0.98


def make_profiles(n, seed):
    """A slow rise and a steep fall, of other heights and widths in each kind, with ripples on it."""
    g = torch.Generator().manual_seed(seed)
    kind = torch.randint(0, KINDS, (n,), generator=g)
    x = torch.linspace(0, 1, POINTS)
    crest = 0.3 + 0.12 * kind[:, None] + 0.05 * torch.randn(n, 1, generator=g)
    height = 0.5 + 0.3 * (kind[:, None] % 2) + 0.1 * torch.randn(n, 1, generator=g)
    rise, fall = torch.exp(-((x - crest) / 0.3) ** 2), torch.exp(-((x - crest) / 0.08) ** 2)
    ripple = 0.06 * torch.sin(40 * x + 6.28 * torch.rand(n, 1, generator=g))
    y = height * torch.where(x < crest, rise, fall) + ripple + 0.02 * torch.randn(n, POINTS, generator=g)
    return 2 * y - 0.6, kind


class Generator(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.kind = nn.Embedding(KINDS, 8)
        self.net = nn.Sequential(
            nn.Linear(NOISE + 8, width), nn.BatchNorm1d(width), nn.ReLU(),
            nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU(),
            nn.Linear(width, POINTS),
        )

    def forward(self, z, kind):
        return self.net(torch.cat([z, self.kind(kind)], 1))


class Critic(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.kind = nn.Embedding(KINDS, 8)
        self.body = nn.Sequential(nn.Linear(POINTS + 8, width), nn.LeakyReLU(0.2), nn.Linear(width, width), nn.LeakyReLU(0.2))
        self.head = nn.Linear(width + 1, 1)

    def forward(self, x, kind):
        h = self.body(torch.cat([x, self.kind(kind)], 1))
        spread = x.std(0).mean().expand(len(x), 1)
        return self.head(torch.cat([h, spread], 1)).squeeze(1)


def penalty(critic, real, fake, kind):
    mix = torch.rand(len(real), 1)
    between = (mix * real + (1 - mix) * fake).requires_grad_(True)
    score = critic(between, kind)
    slope = torch.autograd.grad(score.sum(), between, create_graph=True)[0]
    return (slope.norm(dim=1) - 1).pow(2).mean()


@torch.no_grad()
def follow(average, generator):
    for a, p in zip(average.parameters(), generator.parameters()):
        a.lerp_(p, 1 - DECAY)
    for a, b in zip(average.buffers(), generator.buffers()):
        a.copy_(b)


@torch.no_grad()
def evaluate(generator, x, kind, directions=64):
    """Sliced distance between held-out profiles and generated ones of the same kinds; distance of their mean profiles, kind by kind."""
    generator.eval()
    g = torch.Generator().manual_seed(77)
    fake = torch.cat([generator(torch.randn(len(part), NOISE, generator=g), part) for part in kind.split(100)])
    sliced = 0.0
    for _ in range(directions):
        way = torch.randn(POINTS, generator=g)
        way = way / way.norm()
        a, b = (x @ way).sort()[0], (fake @ way).sort()[0]
        sliced += (a - b).abs().mean().item()
    means = sum((x[kind == k].mean(0) - fake[kind == k].mean(0)).pow(2).mean().sqrt().item() for k in range(KINDS))
    return sliced / directions, means / KINDS


def main():
    torch.manual_seed(31)
    (x, kinds), (held, held_kinds) = make_profiles(1200, 1), make_profiles(500, 2)
    generator, critic = Generator(), Critic()
    average = copy.deepcopy(generator).requires_grad_(False)
    opt_g = torch.optim.Adam(generator.parameters(), lr=LR, betas=(0.0, 0.9))
    opt_c = torch.optim.Adam(critic.parameters(), lr=LR, betas=(0.0, 0.9))
    falls = [torch.optim.lr_scheduler.LambdaLR(opt, lambda s: 1 - s / STEPS) for opt in (opt_g, opt_c)]
    sums = dict(critic=0.0, penalty=0.0, generator=0.0)
    for step in range(STEPS):
        for _ in range(CRITIC):
            idx = torch.randint(0, len(x), (BATCH,))
            real, kind = x[idx], kinds[idx]
            fake = generator(torch.randn(BATCH, NOISE), kind).detach()
            gap = critic(fake, kind).mean() - critic(real, kind).mean()
            slope = penalty(critic, real, fake, kind)
            opt_c.zero_grad()
            (gap + PENALTY * slope).backward()
            opt_c.step()
            sums["critic"] += gap.item()
            sums["penalty"] += slope.item()
        kind = torch.randint(0, KINDS, (BATCH,))
        loss = -critic(generator(torch.randn(BATCH, NOISE), kind), kind).mean()
        opt_g.zero_grad()
        loss.backward()
        opt_g.step()
        follow(average, generator)
        for fall in falls:
            fall.step()
        sums["generator"] += loss.item()
        if (step + 1) % 60 == 0:
            sliced, means = evaluate(average, held, held_kinds)
            print(f"step {step + 1} critic {sums['critic'] / 60 / CRITIC:.5f} penalty {sums['penalty'] / 60 / CRITIC:.5f} generator {sums['generator'] / 60:.5f} sliced {sliced:.5f} means {means:.5f}")
            sums = dict.fromkeys(sums, 0.0)
    torch.save({"generator": generator.state_dict(), "average": average.state_dict(), "critic": critic.state_dict(), "optimizers": [opt_g.state_dict(), opt_c.state_dict()]}, "dune.pt")
    sliced, means = evaluate(average, held, held_kinds, directions=256)
    print(f"final sliced {sliced:.5f} means {means:.5f}")


if __name__ == "__main__":
    main()
