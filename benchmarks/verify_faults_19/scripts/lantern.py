"""Variational auto-encoder for little pictures of lanterns: binarised afresh at every visit, KL term warmed up step by step with free bits, best weights by the held-out bound, importance-weighted bound at the end."""
import copy
import math

import torch
import torch.nn.functional as F
from torch import nn

SIDE, LATENT = 16, 10
EPOCHS, BATCH, LR = 15, 32, 4e-3
WARM, FREE, SAMPLES = 250, 0.4, 16


def make_pictures(n, seed):
    """One or two soft discs of other places, sizes and brightness; a pixel is the chance that it is lit."""
    g = torch.Generator().manual_seed(seed)
    axis = torch.linspace(-1, 1, SIDE)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    lit = torch.zeros(n, SIDE, SIDE)
    for k in range(2):
        place = 1.4 * torch.rand(n, 2, 1, 1, generator=g) - 0.7
        size = 0.15 + 0.25 * torch.rand(n, 1, 1, generator=g)
        bright = 0.6 + 0.35 * torch.rand(n, 1, 1, generator=g)
        there = (torch.rand(n, 1, 1, generator=g) < (1.0, 0.5)[k]).float()
        far = ((x - place[:, 0]) ** 2 + (y - place[:, 1]) ** 2).sqrt()
        lit = torch.maximum(lit, there * bright * torch.sigmoid((size - far) * 14))
    return lit.unsqueeze(1).clamp(0.01, 0.99)


class VAE(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, width, 3, stride=2, padding=1), nn.BatchNorm2d(width), nn.LeakyReLU(0.1),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1), nn.BatchNorm2d(2 * width), nn.LeakyReLU(0.1),
            nn.Flatten(), nn.Linear(2 * width * 16, 2 * LATENT),
        )
        self.lift = nn.Linear(LATENT, 2 * width * 16)
        self.decoder = nn.Sequential(
            nn.Unflatten(1, (2 * width, 4, 4)), nn.BatchNorm2d(2 * width), nn.LeakyReLU(0.1),
            nn.ConvTranspose2d(2 * width, width, 4, stride=2, padding=1), nn.BatchNorm2d(width), nn.LeakyReLU(0.1),
            nn.ConvTranspose2d(width, 1, 4, stride=2, padding=1),
        )

    def encode(self, x):
        return self.encoder(2 * x - 1).chunk(2, dim=1)

    def decode(self, z):
        return self.decoder(self.lift(z))

    def forward(self, x):
        mean, logvar = self.encode(x)
        z = mean + (0.5 * logvar).exp() * torch.randn_like(mean)
        return self.decode(z), mean, logvar


def surprise(logits, x):
    return F.binary_cross_entropy_with_logits(logits, x, reduction="none").flatten(1).sum(1)


def divergence(mean, logvar):
    return 0.5 * (mean**2 + logvar.exp() - 1 - logvar)


@torch.no_grad()
def evaluate(model, x, batch=50):
    """Reconstruction and KL per picture, and how many latents are in use."""
    model.eval()
    recon, kl, means = 0.0, 0.0, []
    for part in x.split(batch):
        mean, logvar = model.encode(part)
        recon += surprise(model.decode(mean), part).sum().item()
        kl += divergence(mean, logvar).sum().item()
        means.append(mean)
    active = int((torch.cat(means).var(0) > 0.02).sum())
    return recon / len(x), kl / len(x), active


@torch.no_grad()
def importance_bound(model, x, batch=40):
    model.eval()
    total = 0.0
    for part in x.split(batch):
        mean, logvar = model.encode(part)
        std = (0.5 * logvar).exp()
        weights = []
        for _ in range(SAMPLES):
            noise = torch.randn_like(std)
            z = mean + std * noise
            weights.append(-surprise(model.decode(z), part) - 0.5 * (z**2 - noise**2 - logvar).sum(1))
        total += (torch.stack(weights).logsumexp(0) - math.log(SAMPLES)).sum().item()
    return total / len(x)


def main():
    torch.manual_seed(21)
    train, held, test = make_pictures(640, 1), make_pictures(200, 2), make_pictures(200, 3)
    held, test = torch.bernoulli(held), torch.bernoulli(test)
    model = VAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=LR)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS, eta_min=1e-4)
    step, best, kept, kept_at = 0, math.inf, None, -1
    for epoch in range(EPOCHS):
        model.train()
        sum_loss, sum_recon, sum_kl = 0.0, 0.0, 0.0
        for idx in torch.randperm(len(train)).split(BATCH):
            x = torch.bernoulli(train[idx])
            logits, mean, logvar = model(x)
            beta = min(1.0, step / WARM)
            recon = surprise(logits, x)
            kl = divergence(mean, logvar)
            loss = recon.mean() + beta * kl.mean(0).clamp(min=FREE).sum()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 20.0)
            optimizer.step()
            step += 1
            sum_loss += loss.item() * len(idx)
            sum_recon += recon.sum().item()
            sum_kl += kl.sum().item()
        scheduler.step()
        recon, kl, active = evaluate(model, held)
        score = recon + kl
        if score < best:
            best, kept, kept_at = score, copy.deepcopy(model.state_dict()), epoch
        n = len(train)
        print(f"epoch {epoch} beta {beta:.3f} loss {sum_loss / n:.4f} recon {sum_recon / n:.4f} kl {sum_kl / n:.4f} held recon {recon:.4f} kl {kl:.4f} active {active}")
    model.load_state_dict(kept)
    torch.save({"model": kept, "epoch": kept_at, "optimizer": optimizer.state_dict()}, "lantern.pt")
    recon, kl, active = evaluate(model, test)
    print(f"best epoch {kept_at} test recon {recon:.4f} kl {kl:.4f} active {active} bound {importance_bound(model, test):.4f}")


if __name__ == "__main__":
    main()
