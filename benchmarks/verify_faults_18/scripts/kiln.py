"""Diffusion of glazes: small vectors of four kinds, cosine noise schedule, v-prediction, dropped labels for guidance, average of the weights with a growing decay, DDIM samples judged by energy distance."""
import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

DIM, KINDS, NONE, STEPS = 6, 4, 4, 100
EPOCHS, BATCH, LR, DROP, GUIDE = 14, 64, 3e-3, 0.15, 1.5


def make_glazes(n, seed):
    """Every kind is a bent ring with its own tilt; raw units differ a lot between columns."""
    g = torch.Generator().manual_seed(seed)
    kind = torch.randint(0, KINDS, (n,), generator=g)
    angle = 2 * math.pi * torch.rand(n, generator=g)
    flat = torch.stack([angle.cos() * (1 + 0.3 * kind), angle.sin(), (2 * angle).cos() * 0.5], 1)
    tilt = torch.randn(KINDS, 3, DIM, generator=torch.Generator().manual_seed(7))
    x = torch.einsum("nd,nde->ne", flat, tilt[kind]) + 0.1 * torch.randn(n, DIM, generator=g)
    return x * torch.tensor([1.0, 5.0, 0.2, 30.0, 1.0, 2.0]) + torch.tensor([0.0, 10.0, 0.0, 100.0, -1.0, 3.0]), kind


def cosine_alphas(steps, s=0.008):
    """Products of (1 - beta) by Nichol and Dhariwal, betas not above 0.999."""
    t = torch.arange(steps + 1, dtype=torch.float64) / steps
    f = torch.cos((t + s) / (1 + s) * math.pi / 2) ** 2
    betas = (1 - f[1:] / f[:-1]).clamp(max=0.999)
    return torch.cumprod(1 - betas, 0).float()


class Net(nn.Module):
    def __init__(self, width=64, p=0.05):
        super().__init__()
        self.kind = nn.Embedding(KINDS + 1, width)
        self.time = nn.Sequential(nn.Linear(16, width), nn.SiLU(), nn.Linear(width, width))
        self.inp = nn.Linear(DIM, width)
        self.mid = nn.ModuleList([nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU(), nn.Dropout(p), nn.Linear(width, width)) for _ in range(3)])
        self.out = nn.Linear(width, DIM)
        self.register_buffer("freqs", torch.exp(-math.log(1000) * torch.arange(8) / 8))

    def forward(self, x, t, kind):
        arg = t.unsqueeze(1) * self.freqs
        cond = self.time(torch.cat([arg.sin(), arg.cos()], 1)) + self.kind(kind)
        h = self.inp(x)
        for block in self.mid:
            h = h + block(h + cond)
        return self.out(h)


class Average:
    def __init__(self, model, decay=0.99):
        self.model, self.decay, self.updates = copy.deepcopy(model).eval(), decay, 0

    @torch.no_grad()
    def update(self, model):
        self.updates += 1
        d = min(self.decay, (1 + self.updates) / (10 + self.updates))
        for a, p in zip(self.model.parameters(), model.parameters()):
            a.lerp_(p, 1 - d)


def v_loss(model, bars, x, kind, t, noise):
    """Squared error of v, weighed by min-SNR (5)."""
    bar = bars[t].unsqueeze(1)
    noisy = bar.sqrt() * x + (1 - bar).sqrt() * noise
    v = bar.sqrt() * noise - (1 - bar).sqrt() * x
    snr = bar / (1 - bar)
    weight = (snr.clamp(max=5) / (snr + 1)).squeeze(1)
    return (weight * (model(noisy, t, kind) - v).pow(2).mean(1)).mean()


@torch.no_grad()
def held_out(model, bars, x, kind):
    """Loss of the held-out glazes at fixed times with fixed noise, in parts of 128."""
    was = model.training
    model.eval()
    g = torch.Generator().manual_seed(5)
    t, noise = torch.randint(0, STEPS, (len(x),), generator=g), torch.randn(x.shape, generator=g)
    total = 0.0
    for i in range(0, len(x), 128):
        part = slice(i, i + 128)
        total += v_loss(model, bars, x[part], kind[part], t[part], noise[part]).item() * len(x[part])
    model.train(was)
    return total / len(x)


@torch.no_grad()
def sample(model, bars, kind, stride=5):
    """DDIM without noise, guided."""
    x = torch.randn(len(kind), DIM, generator=torch.Generator().manual_seed(17))
    times = list(range(STEPS - 1, -1, -stride))
    for i, now in enumerate(times):
        t = torch.full((len(kind),), now)
        with_kind = model(x, t, kind)
        without = model(x, t, torch.full_like(kind, NONE))
        v = without + GUIDE * (with_kind - without)
        bar = bars[now]
        clean = (bar.sqrt() * x - (1 - bar).sqrt() * v).clamp(-4, 4)
        noise = (x - bar.sqrt() * clean) / (1 - bar).sqrt()
        bar = bars[times[i + 1]] if i + 1 < len(times) else torch.ones(())
        x = bar.sqrt() * clean + (1 - bar).sqrt() * noise
    return x


def energy(a, b):
    return (2 * torch.cdist(a, b).mean() - torch.cdist(a, a).mean() - torch.cdist(b, b).mean()).item()


def main():
    torch.manual_seed(1234)
    raw, kind = make_glazes(1500, 0)
    held_raw, held_kind = make_glazes(400, 1)
    mean, std = raw.mean(0), raw.std(0)
    x, held = (raw - mean) / std, (held_raw - mean) / std
    bars = cosine_alphas(STEPS)
    model = Net()
    average = Average(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.01)
    per_epoch = math.ceil(len(x) / BATCH)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=LR, total_steps=EPOCHS * per_epoch, pct_start=0.1)
    for epoch in range(EPOCHS):
        model.train()
        total = 0.0
        for idx in torch.randperm(len(x)).split(BATCH):
            t = torch.randint(0, STEPS, (len(idx),))
            noise = torch.randn(len(idx), DIM)
            label = kind[idx].masked_fill(torch.rand(len(idx)) < DROP, NONE)
            loss = v_loss(model, bars, x[idx], label, t, noise)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            average.update(model)
            total += loss.item() * len(idx)
        print(f"epoch {epoch + 1:2d} train {total / len(x):.5f} held out {held_out(model, bars, held, held_kind):.5f} average {held_out(average.model, bars, held, held_kind):.5f}")
    torch.save({"model": model.state_dict(), "average": average.model.state_dict(), "mean": mean, "std": std}, "kiln.pt")
    made = sample(average.model, bars, held_kind)
    apart = [energy(made[held_kind == k], held[held_kind == k]) for k in range(KINDS)]
    print(f"energy distance {sum(apart) / KINDS:.5f} worst {max(apart):.5f} mean of column 3 {(made * std + mean)[:, 3].mean():.4f}")


if __name__ == "__main__":
    main()
