#!/usr/bin/env python
# coding: utf-8

# # Synthetic electrode microstructures with a WGAN-GP
# Exported from the notebook (File > Export as script). Three phases: pore, carbon, active material.
# `--quick` is the smoke test.

# In[1]:

import os
import sys
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import autograd
from torch.utils.data import Dataset, DataLoader
from PIL import Image

quick = '--quick' in sys.argv

# In[2]:

cfg = dict(
    volume=256,          # side of the tomogram (voxels)
    crop=64,
    crops_per_epoch=32000,
    n_phases=3,
    nz=64,
    ngf=64,
    ndf=64,
    batch=64,
    epochs=60,
    lr=1e-4,
    betas=(0.0, 0.9),
    n_critic=5,
    gp_lambda=10.0,
    s2_samples=128,
    s2_max=32,
    workers=4,
    ema=0.999,
    out='microgan_out',
)
if quick:
    torch.set_num_threads(1)
    cfg.update(volume=48, crop=16, crops_per_epoch=320, nz=8, ngf=8, ndf=8, batch=16, epochs=3, lr=2e-3,
               n_critic=2, s2_samples=16, s2_max=8, workers=1, ema=0.9, out='microgan_quick')

device = 'cuda' if torch.cuda.is_available() else 'cpu'
torch.backends.cudnn.benchmark = True
torch.manual_seed(2021)
np.random.seed(2021)
os.makedirs(cfg['out'], exist_ok=True)

# ## The tomogram
# We cannot publish the real one, so a smoothed random field is cut at two levels instead.

# In[3]:


def tomogram(n):
    k = np.fft.fftfreq(n)
    r2 = k[:, None, None] ** 2 + k[None, :, None] ** 2 + k[None, None, :] ** 2
    field = np.fft.ifftn(np.fft.fftn(np.random.randn(n, n, n)) * np.exp(-r2 * 2 * (np.pi * 3) ** 2)).real
    lo, hi = np.quantile(field, [0.35, 0.5])
    return np.digitize(field, [lo, hi]).astype(np.uint8)


tomo_file = os.path.join(cfg['out'], 'tomogram.npy')
if not os.path.exists(tomo_file):
    np.save(tomo_file, tomogram(cfg['volume']))

# In[4]:


class Crops(Dataset):
    """Random slices in all three directions, one channel per phase."""

    def __init__(self, path, crop, n, n_phases):
        self.path = path
        self.crop, self.n, self.n_phases = crop, n, n_phases

    def __len__(self):
        return self.n

    def __getitem__(self, idx):
        vol = np.load(self.path)
        s, c = vol.shape[0], self.crop
        axis = torch.randint(3, (1,)).item()
        z, y, x = torch.randint(s, (1,)).item(), *torch.randint(s - c + 1, (2,)).tolist()
        img = np.take(vol, z, axis=axis)[y:y + c, x:x + c]
        out = np.zeros((self.n_phases, c, c), dtype=np.float32)
        for p in range(self.n_phases):
            out[p][img == p] = 1.0
        return torch.from_numpy(out)


loader = DataLoader(Crops(tomo_file, cfg['crop'], cfg['crops_per_epoch'], cfg['n_phases']),
                    batch_size=cfg['batch'], num_workers=cfg['workers'], drop_last=True)

# ## Networks

# In[5]:


def weights_init(m):
    if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(m.weight, 0.0, 0.02)
    elif isinstance(m, nn.BatchNorm2d):
        nn.init.normal_(m.weight, 1.0, 0.02)
        nn.init.zeros_(m.bias)


class Generator(nn.Module):
    def __init__(self, nz, ngf, n_phases, size):
        super().__init__()
        n_up = int(np.log2(size)) - 2
        c = ngf * 2 ** (n_up - 1)
        layers = [nn.ConvTranspose2d(nz, c, 4, 1, 0), nn.BatchNorm2d(c), nn.ReLU(True)]
        for _ in range(n_up - 1):
            layers += [nn.ConvTranspose2d(c, c // 2, 4, 2, 1), nn.BatchNorm2d(c // 2), nn.ReLU(True)]
            c //= 2
        layers += [nn.ConvTranspose2d(c, n_phases, 4, 2, 1)]
        self.net = nn.Sequential(*layers)

    def forward(self, z):
        return torch.softmax(self.net(z), dim=1)


class Critic(nn.Module):
    # no BatchNorm: the penalty is per sample
    def __init__(self, ndf, n_phases, size):
        super().__init__()
        n_down = int(np.log2(size)) - 2
        layers, c = [nn.Conv2d(n_phases, ndf, 4, 2, 1), nn.LeakyReLU(0.2, True)], ndf
        for i in range(n_down - 1):
            layers += [nn.Conv2d(c, c * 2, 4, 2, 1), nn.GroupNorm(1, c * 2), nn.LeakyReLU(0.2, True)]
            c *= 2
        layers += [nn.Conv2d(c, 1, 4, 1, 0)]
        self.net = nn.Sequential(*layers)

    def forward(self, x):
        return self.net(x).view(-1)


netG = Generator(cfg['nz'], cfg['ngf'], cfg['n_phases'], cfg['crop']).to(device)
netD = Critic(cfg['ndf'], cfg['n_phases'], cfg['crop']).to(device)
netG.apply(weights_init)
netD.apply(weights_init)
print('G %.2fM  D %.2fM' % tuple(sum(p.numel() for p in n.parameters()) / 1e6 for n in (netG, netD)))

ema_params = {k: v.clone().detach() for k, v in netG.state_dict().items()}


def update_ema():
    for k, v in netG.state_dict().items():
        if v.dtype.is_floating_point:
            ema_params[k] = cfg['ema'] * ema_params[k] + (1 - cfg['ema']) * v.detach()
        else:
            ema_params[k] = v.clone()


# ## Gradient penalty

# In[6]:


def gradient_penalty(real, fake):
    b = real.size(0)
    alpha = torch.rand(b, 1)
    alpha = alpha.expand(b, real.nelement() // b).contiguous().view(real.size())
    alpha = alpha.to(device)
    inter = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    d_inter = netD(inter)
    grads = autograd.grad(outputs=d_inter, inputs=inter,
                          grad_outputs=torch.ones(d_inter.size()).to(device),
                          create_graph=True, retain_graph=True, only_inputs=True)[0]
    grads = grads.view(b, -1)
    return ((grads.norm(2, dim=1) - 1) ** 2).mean() * cfg['gp_lambda']


# ## Two-point correlation
# S2(r) along both axes for the active material, real against generated: the number we report.

# In[7]:


def two_point(img, r_max):
    """img: (N, H, W) of 0/1 on whatever device; periodic"""
    s2 = np.zeros(r_max)
    for r in range(r_max):
        acc = 0.0
        for i in range(img.shape[0]):
            a = (img[i] * torch.roll(img[i], r, 0)).mean()
            b = (img[i] * torch.roll(img[i], r, 1)).mean()
            acc += 0.5 * (a + b).item()
        s2[r] = acc / img.shape[0]
    return s2


def sample(n):
    netG.eval()
    backup = {k: v.clone() for k, v in netG.state_dict().items()}
    netG.load_state_dict(ema_params)
    imgs = []
    for start in range(0, n, cfg['batch']):
        z = torch.randn(min(cfg['batch'], n - start), cfg['nz'], 1, 1, device=device)
        imgs.append(netG(z).argmax(1))
    netG.load_state_dict(backup)
    netG.train()
    return torch.cat(imgs)


real_imgs = torch.cat([b.argmax(1) for b, _ in zip(loader, range(max(1, cfg['s2_samples'] // cfg['batch'])))])
s2_real = two_point((real_imgs == 2).float(), cfg['s2_max'])

# ## Training

# In[8]:

optD = torch.optim.Adam(netD.parameters(), lr=cfg['lr'], betas=cfg['betas'])
optG = torch.optim.Adam(netG.parameters(), lr=cfg['lr'], betas=cfg['betas'])
D_losses, G_losses, W_dist, S2_err = [], [], [], []
shades = np.array([0, 110, 230], dtype=np.uint8)

for epoch in range(cfg['epochs']):
    t0 = time.time()
    n_g = 0
    for i, real in enumerate(loader):
        real = real.to(device)

        # critic
        for p in netD.parameters():
            p.requires_grad_(True)
        netD.zero_grad()
        z = torch.randn(real.size(0), cfg['nz'], 1, 1).to(device)
        fake = netG(z).detach()
        out_real = netD(real).mean()
        out_fake = netD(fake).mean()
        gp = gradient_penalty(real, fake)
        d_cost = out_fake - out_real + gp
        d_cost.backward()
        optD.step()
        D_losses.append(d_cost.item())
        W_dist.append((out_real - out_fake).item())

        # generator, every n_critic batches
        if (i + 1) % cfg['n_critic'] == 0:
            for p in netD.parameters():
                p.requires_grad_(False)
            netG.zero_grad()
            z = torch.randn(real.size(0), cfg['nz'], 1, 1).to(device)
            g_cost = -netD(netG(z)).mean()
            g_cost.backward()
            optG.step()
            update_ema()
            G_losses.append(g_cost)
            n_g += 1

    imgs = sample(cfg['s2_samples'])
    s2_fake = two_point((imgs == 2).float(), cfg['s2_max'])
    S2_err.append(float(np.abs(s2_fake - s2_real).mean()))
    grid = imgs[:16].cpu().numpy()
    rows = [np.hstack(grid[j:j + 4]) for j in range(0, 16, 4)]
    Image.fromarray(shades[np.vstack(rows)]).save(os.path.join(cfg['out'], 'epoch_%03d.png' % epoch))
    print('[%d/%d] D %.3f  W %.3f  G %.3f  S2 error %.4f  %.1fs'
          % (epoch + 1, cfg['epochs'], np.mean(D_losses[-50:]), np.mean(W_dist[-50:]),
             np.mean([g.item() for g in G_losses[-n_g:]]), S2_err[-1], time.time() - t0))
    torch.save({'G': netG.state_dict(), 'D': netD.state_dict(), 'ema': ema_params,
                'optG': optG.state_dict(), 'optD': optD.state_dict(), 'epoch': epoch},
               os.path.join(cfg['out'], 'last.pth'))

# In[9]:

np.savez(os.path.join(cfg['out'], 'curves.npz'), D=np.array(D_losses), W=np.array(W_dist),
         G=torch.stack(G_losses).detach().cpu().numpy(), s2_real=s2_real, s2_fake=s2_fake, s2_err=np.array(S2_err))
print('best S2 error %.4f in epoch %d' % (min(S2_err), int(np.argmin(S2_err)) + 1))
