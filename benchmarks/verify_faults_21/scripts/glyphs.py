"""A small conditional GAN on 16x16 glyphs: two Adams, smoothed real labels, R1 penalty, an averaged generator for sampling."""
import copy
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Config:
    classes: int = 4
    noise: int = 16
    width: int = 16
    batch: int = 32
    epochs: int = 8
    lr_g: float = 2e-3
    lr_d: float = 1e-3
    real_label: float = 0.9
    r1: float = 0.5
    decay: float = 0.98


cfg = Config()


def make_glyphs(n, seed):
    """Ring, cross, stripe or corner; place, size and brightness vary. Values in -1..1."""
    g = torch.Generator().manual_seed(seed)
    kind = torch.randint(0, cfg.classes, (n,), generator=g)
    y, x = torch.meshgrid(torch.arange(16) - 7.5, torch.arange(16) - 7.5, indexing="ij")
    u = x - 4 * torch.rand(n, 1, 1, generator=g) + 2
    v = y - 4 * torch.rand(n, 1, 1, generator=g) + 2
    r = 3 + 2 * torch.rand(n, 1, 1, generator=g)
    bright = 0.6 + 0.4 * torch.rand(n, 1, 1, generator=g)
    ring = ((u**2 + v**2).sqrt() - r).abs() < 1.2
    cross = ((u.abs() < 1) | (v.abs() < 1)) & (torch.maximum(u.abs(), v.abs()) < r)
    stripe = ((u + v).abs() < 1.6) & (u.abs() < r)
    corner = ((u + r).abs() < 1.2) & (v.abs() < r + 1) | ((v + r).abs() < 1.2) & (u.abs() < r + 1)
    images = torch.stack([ring, cross, stripe, corner])[kind, torch.arange(n)].float() * bright
    images = (images + 0.05 * torch.randn(images.shape, generator=g)).clamp(0, 1)
    return (2 * images - 1).unsqueeze(1), kind


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        w = cfg.width
        self.embed = nn.Embedding(cfg.classes, 8)
        self.start = nn.Linear(cfg.noise + 8, 2 * w * 16)
        self.layers = nn.Sequential(
            nn.BatchNorm2d(2 * w), nn.ReLU(),
            nn.ConvTranspose2d(2 * w, w, 4, 2, 1, bias=False), nn.BatchNorm2d(w), nn.ReLU(),
            nn.ConvTranspose2d(w, 1, 4, 2, 1), nn.Tanh(),
        )

    def forward(self, z, kind):
        h = self.start(torch.cat([z, self.embed(kind)], 1))
        return self.layers(h.view(len(z), -1, 4, 4))


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        w = cfg.width
        self.layers = nn.Sequential(
            nn.Conv2d(1, w, 4, 2, 1), nn.SiLU(),
            nn.Conv2d(w, 2 * w, 4, 2, 1, bias=False), nn.BatchNorm2d(2 * w), nn.SiLU(),
            nn.Flatten(), nn.Linear(2 * w * 16, 48), nn.SiLU(),
        )
        self.score = nn.Linear(48, 1)
        self.embed = nn.Embedding(cfg.classes, 48)

    def forward(self, images, kind):
        h = self.layers(images)
        return self.score(h).squeeze(1) + (h * self.embed(kind)).sum(1)


def penalty(d, real, kind):
    real = real.clone().requires_grad_(True)
    (grad,) = torch.autograd.grad(d(real, kind).sum(), real, create_graph=True)
    return grad.square().sum((1, 2, 3)).mean()


@torch.no_grad()
def update_average(average, model, decay):
    for a, p in zip(average.parameters(), model.parameters()):
        a.mul_(decay).add_(p, alpha=1 - decay)
    for a, b in zip(average.buffers(), model.buffers()):
        a.copy_(b)


def describe(images):
    coarse = F.avg_pool2d(images, 4).flatten(1)
    edges = torch.stack([images.diff(dim=2).abs().mean((1, 2, 3)), images.diff(dim=3).abs().mean((1, 2, 3))], 1)
    return torch.cat([coarse, 3 * edges], 1).double()


def frechet(a, b):
    mean = (a.mean(0) - b.mean(0)).square().sum()
    cov_a, cov_b = a.T.cov(), b.T.cov()
    values, vectors = torch.linalg.eigh(cov_a)
    root = vectors @ torch.diag(values.clamp(min=0).sqrt()) @ vectors.T
    both = torch.linalg.eigvalsh(root @ cov_b @ root).clamp(min=0).sqrt().sum()
    return (mean + cov_a.trace() + cov_b.trace() - 2 * both).item()


@torch.no_grad()
def evaluate(generator, z, images, kind):
    generator.eval()
    made = torch.cat([generator(a, b) for a, b in zip(z.split(100), kind.split(100))])
    return sum(frechet(describe(made[kind == k]), describe(images[kind == k])) for k in range(cfg.classes)) / cfg.classes


def main():
    torch.manual_seed(31)
    images, kinds = make_glyphs(842, 1)
    held, held_kinds = make_glyphs(400, 2)
    z_held = torch.randn(400, cfg.noise)
    g, d = Generator(), Discriminator()
    average = copy.deepcopy(g).requires_grad_(False)
    opt_g = torch.optim.Adam(g.parameters(), lr=cfg.lr_g, betas=(0.5, 0.99), eps=1e-6)
    opt_d = torch.optim.Adam(d.parameters(), lr=cfg.lr_d, betas=(0.5, 0.99), eps=1e-6)
    schedules = [torch.optim.lr_scheduler.LambdaLR(o, lambda e: 1 - 0.9 * e / cfg.epochs) for o in (opt_g, opt_d)]
    step = 0
    for epoch in range(cfg.epochs):
        g.train()
        d.train()
        sum_d, sum_g, sum_p, seen = 0.0, 0.0, 0.0, 0
        for rows in torch.randperm(len(images)).split(cfg.batch):
            real, kind = images[rows], kinds[rows]
            n = len(rows)

            # discriminator
            z = torch.randn(n, cfg.noise)
            fake = g(z, kind).detach()
            on_real, on_fake = d(real, kind), d(fake, kind)
            loss_d = F.binary_cross_entropy_with_logits(on_real, torch.full((n,), cfg.real_label))
            loss_d = loss_d + F.binary_cross_entropy_with_logits(on_fake, torch.zeros(n))
            r1 = penalty(d, real, kind)
            opt_d.zero_grad()
            (loss_d + cfg.r1 * r1).backward()
            opt_d.step()

            # generator
            z = torch.randn(n, cfg.noise)
            loss_g = F.binary_cross_entropy_with_logits(d(g(z, kind), kind), torch.ones(n))
            opt_g.zero_grad()
            loss_g.backward()
            opt_g.step()
            update_average(average, g, min(cfg.decay, (1 + step) / (10 + step)))
            step += 1

            sum_d += loss_d.item() * n
            sum_g += loss_g.item() * n
            sum_p += r1.item() * n
            seen += n
        for schedule in schedules:
            schedule.step()
        distance = evaluate(average, z_held, held, held_kinds)
        print(f"epoch {epoch} d {sum_d / seen:.5f} g {sum_g / seen:.5f} r1 {sum_p / seen:.5f} distance {distance:.5f}")
    torch.save({"gen": g.state_dict(), "gen_average": average.state_dict(), "net_d": d.state_dict()}, "glyphs.pt")
    print(f"distance of the averaged generator {distance:.5f}, of the last {evaluate(g, z_held, held, held_kinds):.5f}")


if __name__ == "__main__":
    main()
