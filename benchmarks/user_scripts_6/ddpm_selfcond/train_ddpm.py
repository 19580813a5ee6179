"""Small DDPM (eps-prediction, self-conditioning, min-SNR weighting) on procedural 16x16 RGB textures."""
from __future__ import annotations

import argparse
import contextlib
import copy
import math
import random
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class Config:
    image_size: int = 16
    n_images: int = 768
    dim: int = 16
    timesteps: int = 50
    batch_size: int = 32
    grad_accum: int = 2
    steps: int = 24
    lr: float = 2e-3
    ema_decay: float = 0.95
    snr_gamma: float = 5.0
    log_every: int = 6
    sample_every: int = 12
    precision: str = "fp32"      # fp32 | bf16 | fp16
    compile: bool = False
    seed: int = 7


def exists(x):
    return x is not None


def cycle(dl):
    while True:
        yield from dl


def make_textures(cfg: Config) -> Tensor:
    g = torch.Generator().manual_seed(cfg.seed + 1)
    ax = torch.linspace(-1, 1, cfg.image_size)
    yy, xx = torch.meshgrid(ax, ax, indexing="ij")
    n = cfg.n_images
    th = torch.rand(n, 1, 1, generator=g) * math.pi
    freq = 2 + 4 * torch.rand(n, 1, 1, generator=g)
    wave = torch.sin(freq * (xx * th.cos() + yy * th.sin()) + 6.28 * torch.rand(n, 1, 1, generator=g))
    a, b = torch.rand(n, 3, 1, 1, generator=g), torch.rand(n, 3, 1, 1, generator=g)
    mix = 0.5 + 0.5 * wave[:, None]
    return (mix * a + (1 - mix) * b) * 2 - 1


# ---------------------------------------------------------------- network

class SinusoidalPosEmb(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, t):
        half = self.dim // 2
        freqs = torch.exp(torch.arange(half) * -(math.log(10000) / (half - 1)))
        emb = t[:, None].float() * freqs.to(t.device)[None]
        return torch.cat([emb.sin(), emb.cos()], dim=-1)


class ResBlock(nn.Module):
    def __init__(self, ci, co, tdim):
        super().__init__()
        self.norm1 = nn.GroupNorm(8, ci) if ci % 8 == 0 else nn.Identity()
        self.conv1 = nn.Conv2d(ci, co, 3, padding=1)
        self.mlp = nn.Linear(tdim, co * 2)
        self.norm2 = nn.GroupNorm(8, co)
        self.conv2 = nn.Conv2d(co, co, 3, padding=1)
        self.skip = nn.Conv2d(ci, co, 1) if ci != co else nn.Identity()

    def forward(self, x, temb):
        h = self.conv1(F.silu(self.norm1(x)))
        scale, shift = self.mlp(F.silu(temb))[:, :, None, None].chunk(2, dim=1)
        h = self.norm2(h) * (scale + 1) + shift
        return self.conv2(F.silu(h)) + self.skip(x)


class LinearAttention(nn.Module):
    def __init__(self, dim, heads=2, dim_head=16):
        super().__init__()
        self.heads, self.scale = heads, dim_head ** -0.5
        self.to_qkv = nn.Conv2d(dim, heads * dim_head * 3, 1, bias=False)
        self.to_out = nn.Conv2d(heads * dim_head, dim, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = (z.reshape(b, self.heads, -1, h * w) for z in self.to_qkv(x).chunk(3, dim=1))
        q, k = q.softmax(dim=-2) * self.scale, k.softmax(dim=-1)
        context = torch.einsum("bhdn,bhen->bhde", k, v)
        out = torch.einsum("bhde,bhdn->bhen", context, q).reshape(b, -1, h, w)
        return x + self.to_out(out)


class Attention(nn.Module):
    def __init__(self, dim, heads=2, dim_head=16):
        super().__init__()
        self.heads, self.scale = heads, dim_head ** -0.5
        self.norm = nn.GroupNorm(1, dim)
        self.to_qkv = nn.Conv2d(dim, heads * dim_head * 3, 1, bias=False)
        self.to_out = nn.Conv2d(heads * dim_head, dim, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = (z.reshape(b, self.heads, -1, h * w) for z in self.to_qkv(self.norm(x)).chunk(3, dim=1))
        sim = torch.einsum("bhdi,bhdj->bhij", q * self.scale, k)
        attn = sim.softmax(dim=-1)
        out = torch.einsum("bhij,bhdj->bhdi", attn, v).reshape(b, -1, h, w)
        return x + self.to_out(out)


class UNet(nn.Module):
    def __init__(self, dim):
        super().__init__()
        tdim = dim * 4
        self.time = nn.Sequential(SinusoidalPosEmb(dim), nn.Linear(dim, tdim), nn.SiLU(), nn.Linear(tdim, tdim))
        self.inp = nn.Conv2d(6, dim, 3, padding=1)
        self.d1, self.a1 = ResBlock(dim, dim, tdim), LinearAttention(dim)
        self.down = nn.Conv2d(dim, dim * 2, 4, 2, 1)
        self.d2 = ResBlock(dim * 2, dim * 2, tdim)
        self.mid, self.attn = ResBlock(dim * 2, dim * 2, tdim), Attention(dim * 2)
        self.up = nn.ConvTranspose2d(dim * 2, dim, 4, 2, 1)
        self.u1 = ResBlock(dim * 2, dim, tdim)
        self.out = nn.Conv2d(dim, 3, 1)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, x, t, x_self_cond=None):
        if not exists(x_self_cond):
            x_self_cond = torch.zeros_like(x)
        temb = self.time(t)
        h0 = self.inp(torch.cat([x_self_cond, x], dim=1))
        h1 = self.a1(self.d1(h0, temb))
        h2 = self.attn(self.mid(self.d2(self.down(h1), temb), temb))
        return self.out(self.u1(torch.cat([self.up(h2), h1], dim=1), temb))


# ---------------------------------------------------------------- diffusion

def extract(a: Tensor, t: Tensor, ndim: int) -> Tensor:
    out = a.gather(-1, t.cpu())
    return out.reshape(t.shape[0], *((1,) * (ndim - 1))).to(t.device)


class Diffusion:
    def __init__(self, cfg: Config):
        self.T, self.gamma = cfg.timesteps, cfg.snr_gamma
        s = torch.linspace(0, 1, self.T + 1, dtype=torch.float64)
        f = torch.cos((s + 0.008) / 1.008 * math.pi / 2) ** 2
        self.betas = (1 - f[1:] / f[:-1]).clamp(max=0.999).float()
        alphas = 1 - self.betas
        self.abar = torch.cumprod(alphas, 0)
        self.sqrt_abar, self.sqrt_1m = self.abar.sqrt(), (1 - self.abar).sqrt()
        prev = F.pad(self.abar[:-1], (1, 0), value=1.0)
        self.post_var = self.betas * (1 - prev) / (1 - self.abar)
        self.c0 = self.betas * prev.sqrt() / (1 - self.abar)
        self.ct = (1 - prev) * alphas.sqrt() / (1 - self.abar)

    def x0_from_eps(self, x, t, eps):
        return ((x - extract(self.sqrt_1m, t, 4) * eps) / extract(self.sqrt_abar, t, 4)).clamp(-1, 1)

    def losses(self, model, x0, t):
        noise = torch.randn_like(x0)
        x = extract(self.sqrt_abar, t, 4) * x0 + extract(self.sqrt_1m, t, 4) * noise
        cond = None
        if random.random() < 0.5:
            with torch.no_grad():
                cond = self.x0_from_eps(x, t, model(x, t))
        eps = model(x, t, cond)
        per_sample = F.mse_loss(eps.float(), noise, reduction="none").flatten(1).mean(1)
        snr = self.abar / (1 - self.abar)
        weight = snr.clamp(max=self.gamma) / snr
        return per_sample * extract(weight, t, 1), per_sample

    @torch.inference_mode()
    def sample(self, model, shape, device):
        model.eval()
        x, cond, frames = torch.randn(shape, device=device), None, []
        for i in reversed(range(self.T)):
            t = torch.full((shape[0],), i, device=device, dtype=torch.long)
            cond = self.x0_from_eps(x, t, model(x, t, cond))
            mean = extract(self.c0, t, 4) * cond + extract(self.ct, t, 4) * x
            x = mean if i == 0 else mean + extract(self.post_var, t, 4).sqrt() * torch.randn_like(x)
            frames.append(x.cpu().numpy())
        return x, frames


class EMA:
    def __init__(self, model, decay):
        self.decay = decay
        self.shadow = copy.deepcopy(model).requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        for s, p in zip(self.shadow.parameters(), model.parameters()):
            s.lerp_(p, 1 - self.decay)


class TimestepLossTracker:
    """mean loss in 5 bins of t, to see which noise levels learn"""

    def __init__(self, T, bins=5):
        self.T, self.bins = T, bins
        self.sum, self.n = [0.0] * bins, [0] * bins

    def add(self, t, loss):
        for ti, li in zip(t, loss):
            b = int(ti) * self.bins // self.T
            self.sum[b] += li.item()
            self.n[b] += 1

    def __str__(self):
        return " ".join(f"{s / max(n, 1):.5f}" for s, n in zip(self.sum, self.n))


def main():
    ap = argparse.ArgumentParser()
    for k, v in asdict(Config()).items():
        ap.add_argument(f"--{k}", default=v, type=type(v) if not isinstance(v, bool) else lambda s: s == "True")
    cfg = Config(**vars(ap.parse_args()))
    random.seed(cfg.seed)
    torch.manual_seed(cfg.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")

    data = make_textures(cfg)
    loader = cycle(DataLoader(TensorDataset(data), batch_size=cfg.batch_size, shuffle=True, drop_last=True,
                              pin_memory=device.type == "cuda"))
    model = UNet(cfg.dim).to(device, memory_format=torch.channels_last)
    ema = EMA(model, cfg.ema_decay)
    net = torch.compile(model) if cfg.compile else model
    opt = torch.optim.Adam(model.parameters(), lr=cfg.lr, betas=(0.9, 0.99), fused=device.type == "cuda")
    diffusion, tracker = Diffusion(cfg), TimestepLossTracker(cfg.timesteps)
    scaler = torch.amp.GradScaler("cuda", enabled=cfg.precision == "fp16" and device.type == "cuda")
    amp = contextlib.nullcontext() if cfg.precision == "fp32" else torch.autocast(
        device.type, dtype=torch.bfloat16 if cfg.precision == "bf16" else torch.float16)
    out = Path(tempfile.mkdtemp())

    running = torch.zeros((), device=device)
    for step in range(1, cfg.steps + 1):
        net.train()
        for _ in range(cfg.grad_accum):
            (x0,) = next(loader)
            x0 = x0.to(device, non_blocking=True, memory_format=torch.channels_last)
            t = torch.randint(0, cfg.timesteps, (x0.shape[0],)).to(device)
            with amp:
                weighted, per_sample = diffusion.losses(net, x0, t)
            loss = weighted.mean() / cfg.grad_accum
            scaler.scale(loss).backward()
            running += loss.detach()
            tracker.add(t, per_sample)
        scaler.unscale_(opt)
        gnorm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
        opt.zero_grad(set_to_none=True)
        ema.update(model)
        if not math.isfinite(gnorm.item()):
            print("warning: gradient norm", gnorm.item(), "at step", step)

        if step % cfg.log_every == 0:
            print(f"step {step:3d} loss {running.item() / cfg.log_every:.7f} gnorm {gnorm.item():.5f}")
            running.zero_()
        if step % cfg.sample_every == 0:
            x, _ = diffusion.sample(ema.shadow, (8, 3, cfg.image_size, cfg.image_size), device)
            print(f"  sample mean {x.mean().item():.6f} std {x.std().item():.6f}")
            torch.save({"step": step, "model": model.state_dict(), "ema": ema.shadow.state_dict(),
                        "opt": opt.state_dict(), "scaler": scaler.state_dict()}, out / f"model-{step}.pt")
    print("loss by t:", tracker)


if __name__ == "__main__":
    main()
