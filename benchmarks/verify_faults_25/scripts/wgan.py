"""WGAN-GP for two-dimensional samples (a ring of unequal spots), generator averaged by EMA."""
import copy
import math
import os
from argparse import ArgumentParser

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

ap = ArgumentParser()
ap.add_argument("--iters", type=int, default=500)
ap.add_argument("--batch", type=int, default=128)
ap.add_argument("--n-critic", type=int, default=4)
ap.add_argument("--gp", type=float, default=2.0)
ap.add_argument("--zdim", type=int, default=8)
ap.add_argument("--lr", type=float, default=1e-3)
ap.add_argument("--ema", type=float, default=0.98)
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--dir", default="wgan_ckpt")
args = ap.parse_args()


def ring(n, seed):
    g = torch.Generator().manual_seed(seed)
    weights = torch.tensor([4.0, 1, 2, 1, 3, 1])
    k = torch.multinomial(weights, n, replacement=True, generator=g)
    ang = 2 * math.pi * k / 6
    centre = torch.stack([ang.cos(), ang.sin()], 1) * 1.5
    return centre + torch.randn(n, 2, generator=g) * torch.tensor([0.15, 0.08])


class Generator(nn.Module):
    def __init__(self, zdim, h=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(zdim, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU(), nn.Linear(h, 2))

    def forward(self, z):
        return self.net(z)


class Critic(nn.Module):
    def __init__(self, h=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, h), nn.LayerNorm(h), nn.SiLU(), nn.Linear(h, h), nn.SiLU(),
                                 nn.Linear(h, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


def gradient_penalty(critic, real, fake):
    eps = torch.rand(real.shape[0], 1)
    mix = (eps * real + (1 - eps) * fake).requires_grad_(True)
    out = critic(mix)
    grad = torch.autograd.grad(out, mix, grad_outputs=torch.ones_like(out), create_graph=True)[0]
    return ((grad.norm(2, dim=1) - 1) ** 2).mean()


def sliced_wasserstein(a, b, n_proj=64):
    g = torch.Generator().manual_seed(123)
    dirs = torch.randn(n_proj, 2, generator=g)
    total = 0.0
    for d in dirs:
        d = d / d.norm()
        total += ((a @ d).sort()[0] - (b @ d).sort()[0]).abs().mean().item()
    return total / n_proj


def endless(loader):
    while True:
        for (x,) in loader:
            yield x


torch.manual_seed(args.seed)
train_x = ring(4096, 1)
held_x = ring(2000, 2)
loader = DataLoader(TensorDataset(train_x), batch_size=args.batch, shuffle=True, drop_last=True)
gen, critic = Generator(args.zdim), Critic()
gen_ema = copy.deepcopy(gen).requires_grad_(False)
opt_g = torch.optim.Adam(gen.parameters(), lr=args.lr, betas=(0.5, 0.9))
opt_d = torch.optim.Adam(critic.parameters(), lr=args.lr, betas=(0.5, 0.9))
stream = endless(loader)

for it in range(1, args.iters + 1):
    for _ in range(args.n_critic):
        real = next(stream)
        with torch.no_grad():
            fake = gen(torch.randn(len(real), args.zdim))
        gap = critic(fake).mean() - critic(real).mean()
        gp = gradient_penalty(critic, real, fake)
        d_loss = gap + args.gp * gp
        opt_d.zero_grad()
        d_loss.backward()
        opt_d.step()

    fake = gen(torch.randn(args.batch, args.zdim))
    g_loss = -critic(fake).mean()
    opt_g.zero_grad()
    g_loss.backward()
    opt_g.step()
    with torch.no_grad():
        for pe, p in zip(gen_ema.parameters(), gen.parameters()):
            pe.mul_(args.ema).add_(p, alpha=1 - args.ema)

    if it % 50 == 0:
        with torch.no_grad():
            sample = gen_ema(torch.randn(2000, args.zdim))
        sw = sliced_wasserstein(sample, held_x)
        print(f"iter {it} wasserstein gap {-gap.item():.4f} gp {gp.item():.4f} "
              f"g_loss {g_loss.item():.4f} sliced-w {sw:.4f}", flush=True)

os.makedirs(args.dir, exist_ok=True)
torch.save({"gen": gen.state_dict(), "gen_ema": gen_ema.state_dict(), "critic": critic.state_dict()},
           os.path.join(args.dir, "last.pt"))
