#!/usr/bin/env python3
"""VQ-VAE on procedurally drawn azulejo tiles, then a gated PixelCNN prior on the codes.

    ./vqvae.py key=value ...       (keys: fields of Config)

Stage 1: encoder / EMA codebook / decoder, L1 + edge loss.  Stage 2: PixelCNN over the 1/4 resolution code grid.
Samples are written as a contact sheet after each stage.
"""
import dataclasses
import os
import sys
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image, ImageDraw
from torch.utils.data import DataLoader, Dataset


@dataclasses.dataclass
class Config:
    images: int = 60000
    size: int = 128
    width: int = 128
    codes: int = 1024
    code_dim: int = 64
    decay: float = 0.99
    beta: float = 0.25
    restart_every: int = 10
    batch: int = 64
    epochs: int = 60
    lr: float = 2e-4
    prior_width: int = 128
    prior_layers: int = 12
    prior_batch: int = 64
    prior_epochs: int = 40
    workers: int = 8
    seed: int = 11
    out: str = 'runs/tiles'


cfg = Config()
for arg in sys.argv[1:]:
    key, value = arg.split('=', 1)
    setattr(cfg, key, type(getattr(cfg, key))(value))
device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
torch.manual_seed(cfg.seed)
np.random.seed(cfg.seed)
os.makedirs(cfg.out, exist_ok=True)


# ----------------------------------------------------------------------------------------- tiles
def draw_tile(rng, size):
    """A quarter motif mirrored to four-fold symmetry, blue-ish palette on white glaze."""
    half = size // 2
    base = tuple(int(v) for v in rng.integers(225, 250, 3))
    img = Image.new('RGB', (half, half), base)
    d = ImageDraw.Draw(img)
    for _ in range(int(rng.integers(3, 7))):
        color = (int(rng.integers(10, 90)), int(rng.integers(40, 130)), int(rng.integers(120, 220)))
        if rng.random() < 0.2:
            color = (220, 170, 40)
        x, y, r = rng.uniform(0, half), rng.uniform(0, half), rng.uniform(half * 0.1, half * 0.5)
        kind = rng.integers(3)
        if kind == 0:
            d.ellipse((x - r, y - r, x + r, y + r), outline=color, width=max(1, size // 32))
        elif kind == 1:
            d.polygon([(x, y - r), (x + r, y), (x, y + r), (x - r, y)], fill=color)
        else:
            d.line((x, y, half, half), fill=color, width=max(1, size // 24))
    q = np.asarray(img)
    top = np.concatenate([q, q[:, ::-1]], 1)
    return np.concatenate([top, top[::-1]], 0)


class Tiles(Dataset):
    def __init__(self, n, size, seed):
        rng = np.random.default_rng(seed)
        self.data = np.stack([draw_tile(rng, size) for _ in range(n)])      # uint8, N H W 3

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        return torch.from_numpy(self.data[i]).permute(2, 0, 1).float() / 127.5 - 1


# ----------------------------------------------------------------------------------------- stage 1
class ResBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.net = nn.Sequential(nn.GroupNorm(8, c), nn.SiLU(), nn.Conv2d(c, c, 3, padding=1),
                                 nn.GroupNorm(8, c), nn.SiLU(), nn.Conv2d(c, c, 1))

    def forward(self, x):
        return x + self.net(x)


class Quantizer(nn.Module):
    def __init__(self, codes, dim, decay, beta):
        super().__init__()
        self.codes, self.dim, self.decay, self.beta = codes, dim, decay, beta
        embed = torch.randn(codes, dim) * 0.1
        self.register_buffer('embed', embed)
        self.register_buffer('ema_count', torch.ones(codes))
        self.register_buffer('ema_sum', embed.clone())

    def distances(self, flat):
        return (flat.unsqueeze(1) - self.embed.unsqueeze(0)).pow(2).sum(-1)

    def indices(self, z):
        flat = z.permute(0, 2, 3, 1).reshape(-1, self.dim)
        return self.distances(flat).argmin(1).view(z.shape[0], *z.shape[2:])

    def lookup(self, idx):
        return F.embedding(idx, self.embed).permute(0, 3, 1, 2)

    def forward(self, z):
        B, C, H, W = z.shape
        flat = z.permute(0, 2, 3, 1).reshape(-1, C)
        idx = self.distances(flat).argmin(1)
        onehot = F.one_hot(idx, self.codes).float()
        q = (onehot @ self.embed).view(B, H, W, C).permute(0, 3, 1, 2)
        if self.training:
            with torch.no_grad():
                self.ema_count.mul_(self.decay).add_(onehot.sum(0), alpha=1 - self.decay)
                self.ema_sum.mul_(self.decay).add_(onehot.t() @ flat, alpha=1 - self.decay)
                n = self.ema_count.sum()
                count = (self.ema_count + 1e-5) / (n + self.codes * 1e-5) * n
                self.embed.copy_(self.ema_sum / count.unsqueeze(1))
        commit = self.beta * F.mse_loss(z, q.detach())
        p = onehot.mean(0)
        perplexity = torch.exp(-(p * torch.log(p + 1e-10)).sum())
        return z + (q - z).detach(), commit, perplexity, flat

    @torch.no_grad()
    def restart(self, flat, threshold=0.3):
        """Move codes that nobody uses onto random encoder outputs of this batch."""
        moved = 0
        for k in range(self.codes):
            if self.ema_count[k] < threshold:
                j = torch.randint(flat.shape[0], (1,)).item()
                self.embed[k] = flat[j]
                self.ema_sum[k] = flat[j]
                self.ema_count[k] = 1.0
                moved += 1
        return moved


class VQVAE(nn.Module):
    def __init__(self, c):
        super().__init__()
        w = c.width
        self.encoder = nn.Sequential(nn.Conv2d(3, w // 2, 4, 2, 1), nn.SiLU(), nn.Conv2d(w // 2, w, 4, 2, 1),
                                     ResBlock(w), ResBlock(w), nn.Conv2d(w, c.code_dim, 1))
        self.quantizer = Quantizer(c.codes, c.code_dim, c.decay, c.beta)
        self.decoder = nn.Sequential(nn.Conv2d(c.code_dim, w, 3, padding=1), ResBlock(w), ResBlock(w),
                                     nn.ConvTranspose2d(w, w // 2, 4, 2, 1), nn.SiLU(),
                                     nn.ConvTranspose2d(w // 2, 3, 4, 2, 1))

    def forward(self, x):
        q, commit, perplexity, flat = self.quantizer(self.encoder(x))
        return self.decoder(q), commit, perplexity, flat


def edges(x):
    """Sobel magnitude of the luminance."""
    gray = x.mean(1, keepdim=True)
    kx = torch.tensor([[1., 0., -1.], [2., 0., -2.], [1., 0., -1.]]).view(1, 1, 3, 3).to(x.device)
    gx = F.conv2d(gray, kx, padding=1)
    gy = F.conv2d(gray, kx.transpose(2, 3), padding=1)
    return torch.sqrt(gx ** 2 + gy ** 2 + 1e-6)


def sheet(x, path, cols=4):
    x = ((x.clamp(-1, 1) + 1) * 127.5).byte().permute(0, 2, 3, 1).cpu().numpy()
    rows = [np.concatenate(list(x[i:i + cols]), 1) for i in range(0, len(x) - cols + 1, cols)]
    Image.fromarray(np.concatenate(rows, 0)).save(path)


# ----------------------------------------------------------------------------------------- stage 2
class MaskedConv(nn.Conv2d):
    def __init__(self, kind, cin, cout, k):
        super().__init__(cin, cout, k, padding=k // 2)
        mask = torch.ones(k, k)
        mask[k // 2, k // 2 + (kind == 'B'):] = 0
        mask[k // 2 + 1:] = 0
        self.register_buffer('mask', mask)

    def forward(self, x):
        return F.conv2d(x, self.weight * self.mask, self.bias, padding=self.padding)


class PixelCNN(nn.Module):
    def __init__(self, codes, width, layers):
        super().__init__()
        self.embed = nn.Embedding(codes, width)
        self.first = MaskedConv('A', width, 2 * width, 7)
        self.layers = nn.ModuleList([MaskedConv('B', width, 2 * width, 5) for _ in range(layers)])
        self.norms = nn.ModuleList([nn.BatchNorm2d(2 * width) for _ in range(layers)])
        self.out = nn.Sequential(nn.ReLU(), nn.Conv2d(width, 4 * width, 1), nn.ReLU(), nn.Conv2d(4 * width, codes, 1))

    def forward(self, idx):
        a, b = self.first(self.embed(idx).permute(0, 3, 1, 2)).chunk(2, 1)
        x = torch.tanh(a) * torch.sigmoid(b)
        for conv, norm in zip(self.layers, self.norms):
            a, b = norm(conv(x)).chunk(2, 1)
            x = x + torch.tanh(a) * torch.sigmoid(b)
        return self.out(x)

    @torch.no_grad()
    def sample(self, n, grid):
        self.eval()
        idx = torch.zeros(n, grid, grid, dtype=torch.long, device=device)
        for y in range(grid):
            for x in range(grid):
                logits = self(idx)[:, :, y, x]
                idx[:, y, x] = torch.multinomial(logits.softmax(1), 1).squeeze(1)
        self.train()
        return idx


def main():
    data = Tiles(cfg.images, cfg.size, cfg.seed)
    held = Tiles(max(16, cfg.images // 50), cfg.size, cfg.seed + 1)
    loader = DataLoader(data, cfg.batch, shuffle=True, drop_last=True, num_workers=cfg.workers,
                        pin_memory=device.type == 'cuda', persistent_workers=cfg.workers > 0)
    held_loader = DataLoader(held, cfg.batch)
    model = VQVAE(cfg).to(device)
    opt = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    step = 0
    for epoch in range(cfg.epochs):
        t0 = time.time()
        rec_sum = commit_sum = perp_sum = 0.0
        moved = 0
        for x in loader:
            x = x.to(device, non_blocking=True)
            y, commit, perplexity, flat = model(x)
            rec = F.l1_loss(y, x) + 0.5 * F.l1_loss(edges(y), edges(x))
            loss = rec + commit
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            step += 1
            if step % cfg.restart_every == 0 and epoch < cfg.epochs * 0.8:
                moved += model.quantizer.restart(flat)
            rec_sum += rec.item()
            commit_sum += commit.item()
            perp_sum += perplexity.item()
        n = len(loader)
        model.eval()
        with torch.no_grad():
            held_rec = sum(F.l1_loss(model(x.to(device))[0], x.to(device)).item() for x in held_loader) / len(held_loader)
        model.train()
        print(f'vq {epoch:3d} rec {rec_sum / n:.5f} commit {commit_sum / n:.5f} perplexity {perp_sum / n:.2f} '
              f'restarts {moved} held {held_rec:.5f}   [{time.time() - t0:.1f} s]')
        if epoch % 10 == 0 or epoch == cfg.epochs - 1:
            torch.save(model.state_dict(), os.path.join(cfg.out, 'vqvae.pt'))

    model.eval()
    prior = PixelCNN(cfg.codes, cfg.prior_width, cfg.prior_layers).to(device)
    opt = torch.optim.Adam(prior.parameters(), lr=3e-4)
    prior_loader = DataLoader(data, cfg.prior_batch, shuffle=True, num_workers=cfg.workers)
    for epoch in range(cfg.prior_epochs):
        t0 = time.time()
        losses = []
        for x in prior_loader:
            codes = model.quantizer.indices(model.encoder(x.to(device)))
            loss = F.cross_entropy(prior(codes), codes)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(prior.parameters(), 1.0)
            opt.step()
            losses.append(loss.item())
        print(f'prior {epoch:3d} nats/code {np.mean(losses):.5f}   [{time.time() - t0:.1f} s]')

    grid = cfg.size // 4
    with torch.no_grad():
        tiles = model.decoder(model.quantizer.lookup(prior.sample(16, grid)))
    sheet(tiles, os.path.join(cfg.out, 'samples.png'))
    print(f'sample mean {tiles.mean().item():.5f}')


if __name__ == '__main__':
    main()
