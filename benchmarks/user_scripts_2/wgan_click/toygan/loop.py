import copy
from pathlib import Path

import torch
from torch import autograd

from .data import Blobs, Infinite, augment, frechet, noise
from .nets import Critic, Generator
from .optim import ExtraAdam


class GAN:
    def __init__(self, *, z, width, batch, n_critic, gamma, ada_target, seed, device, outdir):
        torch.manual_seed(seed)
        self.device = device
        self.outdir = Path(outdir)
        self.outdir.mkdir(exist_ok=True)
        self.G, self.D = Generator(z, width).to(device), Critic(width).to(device)
        self.Gs = copy.deepcopy(self.G).eval().requires_grad_(False)
        self.opt_g = ExtraAdam(self.G.parameters(), lr=2e-3, betas=(.5, .9))
        self.opt_d = torch.optim.Adam(self.D.parameters(), lr=2e-3, betas=(0., .9))
        self.data = Blobs(16, seed)
        self.loader = Infinite(self.data, batch_size=batch, drop_last=True)
        self.rng = torch.Generator().manual_seed(seed + 1)
        self.fixed = noise(64, z, torch.Generator().manual_seed(0), device)
        self.batch, self.n_critic, self.gamma, self.ada_target = batch, n_critic, gamma, ada_target
        self.p, self.sign, self.it = 0., 0., 0
        self.reals = []

    def penalty(self, real, fake):
        eps = torch.rand(real.size(0), 1, 1, 1, generator=self.rng).to(self.device)
        mix = (eps * real + (1 - eps) * fake).requires_grad_(True)
        out = self.D(mix)
        g, = autograd.grad(out, mix, torch.ones_like(out), create_graph=True)
        return ((g.flatten(1).pow(2).sum(1) + 1e-12).sqrt() - 1).pow(2).mean()

    def critic_step(self):
        real = self.loader.take().to(self.device)
        if len(self.reals) < 10:
            self.reals.append(real.cpu())
        with torch.no_grad():
            fake = self.G(noise(self.batch, self.G.z, self.rng, self.device))
        real, fake = augment(real, self.p, self.rng), augment(fake, self.p, self.rng)
        d_real, d_fake = self.D(real), self.D(fake)
        gp = self.penalty(real, fake)
        drift = 1e-3 * d_real.pow(2).mean()
        loss = d_fake.mean() - d_real.mean() + self.gamma * gp + drift
        self.opt_d.zero_grad()
        loss.backward()
        self.opt_d.step()
        self.sign = .9 * self.sign + .1 * d_real.sign().mean().item()
        return (d_real.mean() - d_fake.mean()).item(), gp.item()

    def gen_loss(self):
        fake = self.G(noise(self.batch, self.G.z, self.rng, self.device))
        return -self.D(augment(fake, self.p, self.rng)).mean()

    def gen_step(self):
        self.D.requires_grad_(False)
        for act in (self.opt_g.extrapolate, self.opt_g.step):
            self.opt_g.zero_grad()
            loss = self.gen_loss()
            loss.backward()
            act()
        self.D.requires_grad_(True)
        with torch.no_grad():
            for a, b in zip(self.Gs.parameters(), self.G.parameters()):
                a.lerp_(b, .1)
            for a, b in zip(self.Gs.buffers(), self.G.buffers()):
                a.copy_(b)
        return loss.item()

    def run(self, total):
        w = gp = lg = 0.
        while self.data.served < total:
            # the critic must be good at the beginning
            n = self.n_critic * 3 if self.it < 2 else self.n_critic
            for _ in range(n):
                w, gp = self.critic_step()
            lg = self.gen_step()
            self.it += 1
            # ADA: more augmentation when the critic is sure of the real ones
            self.p = min(.6, max(0., self.p + (.02 if self.sign > self.ada_target else -.02)))
            if self.it % 5 == 0:
                print(f'it {self.it} seen {self.data.served} W {w!r} gp {gp!r} g {lg!r} p {self.p!r} fd {self.distance()!r}')
            if w != w:
                print('diverged')
                break
        self.save()

    def distance(self):
        """the generator stays in train mode here: batch statistics as in training, but the running ones are put back"""
        bufs = [b.clone() for b in self.G.buffers()]
        x = self.G(self.fixed)
        for b, old in zip(self.G.buffers(), bufs):
            b.data.copy_(old)
        return frechet(x.detach().cpu(), torch.cat(self.reals))

    def save(self):
        torch.save({'Gs': self.Gs.state_dict(), 'z': self.G.z, 'width': self.G.bn.num_features,
                    'data_rng': self.data.g.get_state(), 'rng': self.rng.get_state()}, self.outdir / 'last.pt')
