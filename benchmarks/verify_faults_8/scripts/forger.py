import time
import types

import numpy as np
import torch
from torch import autograd, nn, optim

opt = types.SimpleNamespace(latent=8, hidden=64, batch=64, n_critic=3, lam=2.0, lr=2e-3, iters=160, log=40)


def real_batch(n):
    """Eight heaps on a ring."""
    k = torch.randint(0, 8, (n,))
    angle = k * (2 * np.pi / 8)
    return torch.stack([angle.cos(), angle.sin()], 1) * 1.5 + 0.08 * torch.randn(n, 2)


def mlp(i, o):
    return nn.Sequential(nn.Linear(i, opt.hidden), nn.LeakyReLU(0.2), nn.Linear(opt.hidden, opt.hidden), nn.LeakyReLU(0.2), nn.Linear(opt.hidden, o))


def gradient_penalty(critic, real, fake):
    eps = torch.rand(real.size(0), 1)
    mid = (eps * real + (1 - eps) * fake).requires_grad_(True)
    out = critic(mid)
    grad = autograd.grad(out, mid, grad_outputs=torch.ones_like(out), create_graph=True, retain_graph=True)[0]
    return ((grad.norm(2, dim=1) - 1) ** 2).mean()


def report(G, n=800):
    with torch.no_grad():
        x = G(torch.randn(n, opt.latent))
    angle = torch.arange(8) * (2 * np.pi / 8)
    heaps = torch.stack([angle.cos(), angle.sin()], 1) * 1.5
    distance = torch.cdist(x, heaps).min(dim=1)
    good = distance.values < 0.4
    modes = len(distance.indices[good].unique())
    return good.float().mean().item(), modes, x.norm(dim=1).mean().item()


G, D = mlp(opt.latent, 2), mlp(2, 1)
opt_g = optim.Adam(G.parameters(), lr=opt.lr, betas=(0.5, 0.9))
opt_d = optim.Adam(D.parameters(), lr=opt.lr, betas=(0.5, 0.9))
sched_g = optim.lr_scheduler.LambdaLR(opt_g, lambda i: 1 - 0.8 * i / opt.iters)
sched_d = optim.lr_scheduler.LambdaLR(opt_d, lambda i: 1 - 0.8 * i / opt.iters)

began = time.time()
w_log, gp_log, g_log = [], [], []
for it in range(1, opt.iters + 1):
    for _ in range(opt.n_critic):
        real = real_batch(opt.batch)
        z = torch.randn(opt.batch, opt.latent)
        fake = G(z).detach()
        d_real, d_fake = D(real), D(fake)
        gp = gradient_penalty(D, real, fake)
        loss_d = d_fake.mean() - d_real.mean() + opt.lam * gp
        opt_d.zero_grad()
        loss_d.backward()
        opt_d.step()
        w_log.append((d_real.mean() - d_fake.mean()).item())
        gp_log.append(gp.item())

    z = torch.randn(opt.batch, opt.latent)
    loss_g = -D(G(z)).mean()
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
    g_log.append(loss_g.item())
    sched_g.step()
    sched_d.step()

    if it % opt.log == 0:
        quality, modes, radius = report(G)
        print(
            "[%4d/%d] W: %.4f  GP: %.4f  G: %.4f  good: %.3f  modes: %d  radius: %.3f  (%.1fs)"
            % (it, opt.iters, np.mean(w_log[-40:]), np.mean(gp_log[-40:]), np.mean(g_log[-40:]), quality, modes, radius, time.time() - began)
        )
torch.save({"G": G.state_dict(), "D": D.state_dict()}, "forger.pt")
