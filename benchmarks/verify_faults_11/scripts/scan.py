"""A radiance field in flatland: cameras on a ring see a strip of pixels, a coarse and a fine net explain what they see."""
import argparse
import math
import time

import numpy as np
import torch
from torch import nn

NEAR, FAR = 1.0, 4.2


def scene(points):
    """Density and colour of the true scene."""
    density = torch.zeros(points.shape[:-1])
    color = torch.zeros(*points.shape[:-1], 3)
    for cx, cy, r, rgb in [(0.0, 0.35, 0.42, (0.9, 0.2, 0.1)), (0.55, -0.4, 0.3, (0.1, 0.7, 0.3)), (-0.6, -0.25, 0.36, (0.2, 0.3, 0.9)), (-0.1, -0.75, 0.2, (0.9, 0.8, 0.2))]:
        d = ((points[..., 0] - cx) ** 2 + (points[..., 1] - cy) ** 2).sqrt()
        inside = torch.sigmoid((r - d) * 40) * 9
        density = density + inside
        stripes = 0.75 + 0.25 * torch.sin(14 * points[..., 0] + 9 * points[..., 1])
        color = color + inside[..., None] * torch.tensor(rgb) * stripes[..., None]
    return density, color / (density[..., None] + 1e-6)


def composite(density, color, z):
    gaps = torch.cat([z[:, 1:] - z[:, :-1], torch.full_like(z[:, :1], 1e2)], 1)
    alpha = 1 - torch.exp(-density * gaps)
    through = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], 1), 1)[:, :-1]
    weights = alpha * through
    return (weights[..., None] * color).sum(1), weights.sum(1), weights


def camera(angle, width):
    eye = torch.tensor([math.cos(angle), math.sin(angle)]) * 2.6
    look, right = -eye / 2.6, torch.tensor([-math.sin(angle), math.cos(angle)])
    spread = torch.linspace(-0.55, 0.55, width)
    rays = look + spread[:, None] * right
    return eye.expand(width, 2), rays / rays.norm(dim=1, keepdim=True)


def photographs(angles, width):
    origins, directions, pixels = [], [], []
    for angle in angles:
        o, d = camera(angle, width)
        z = torch.linspace(NEAR, FAR, 400).expand(width, 400)
        density, color = scene(o[:, None] + z[..., None] * d[:, None])
        rgb, opacity, _ = composite(density, color, z)
        origins.append(o), directions.append(d), pixels.append(torch.cat([rgb, opacity[:, None]], 1))
    return torch.cat(origins), torch.cat(directions), torch.cat(pixels).clamp(0, 1)


class Field(nn.Module):
    def __init__(self, levels=5, width=48):
        super().__init__()
        self.register_buffer("frequencies", 2.0 ** torch.arange(levels))
        self.trunk = nn.Sequential(nn.Linear(2 + 4 * levels, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.density = nn.Linear(width, 1)
        self.color = nn.Sequential(nn.Linear(width + 2, width // 2), nn.ReLU(), nn.Linear(width // 2, 3), nn.Sigmoid())

    def forward(self, points, directions, noise=0.0):
        x = (points[..., None] * self.frequencies).flatten(-2)
        h = self.trunk(torch.cat([points, x.sin(), x.cos()], -1))
        raw = self.density(h).squeeze(-1)
        if noise > 0:
            raw = raw + noise * torch.randn_like(raw)
        return torch.relu(raw), self.color(torch.cat([h, directions], -1))


def stratified(count, samples, jitter):
    edges = torch.linspace(NEAR, FAR, samples + 1)
    low, high = edges[:-1], edges[1:]
    place = torch.rand(count, samples) if jitter else torch.full((count, samples), 0.5)
    return low + (high - low) * place


def importance(z, weights, samples, jitter):
    middles = 0.5 * (z[:, 1:] + z[:, :-1])
    pdf = weights[:, 1:-1] + 1e-5
    cdf = torch.cumsum(pdf / pdf.sum(1, keepdim=True), 1)
    cdf = torch.cat([torch.zeros_like(cdf[:, :1]), cdf], 1)
    u = torch.rand(len(z), samples) if jitter else torch.linspace(0.02, 0.98, samples).expand(len(z), samples)
    above = torch.searchsorted(cdf, u.contiguous(), right=True).clamp(1, cdf.shape[1] - 1)
    c0, c1 = cdf.gather(1, above - 1), cdf.gather(1, above)
    m0, m1 = middles.gather(1, above - 1), middles.gather(1, above)
    part = (u - c0) / (c1 - c0).clamp(min=1e-5)
    return m0 + part * (m1 - m0)


def render(coarse, fine, origins, directions, args, background, jitter, noise=0.0):
    def shade(field, z):
        points = origins[:, None] + z[..., None] * directions[:, None]
        density, color = field(points, directions[:, None].expand_as(points), noise)
        rgb, opacity, weights = composite(density, color, z)
        return rgb + (1 - opacity)[:, None] * background, weights

    z = stratified(len(origins), args.coarse, jitter)
    first, weights = shade(coarse, z)
    finer = importance(z, weights.detach(), args.fine, jitter)
    second, _ = shade(fine, torch.sort(torch.cat([z, finer], 1), 1)[0])
    return first, second


@torch.no_grad()
def psnr(coarse, fine, rays, args):
    origins, directions, pixels = rays
    wrong = []
    for o, d, p in zip(origins.split(60), directions.split(60), pixels.split(60)):
        _, rgb = render(coarse, fine, o, d, args, 1.0, jitter=False)
        wrong.append(((rgb - (p[:, :3] + (1 - p[:, 3:]) * 1.0)) ** 2).mean(1))
    return -10 * torch.log10(torch.cat(wrong).mean()).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rays", type=int, default=128)
    parser.add_argument("--coarse", type=int, default=20)
    parser.add_argument("--fine", type=int, default=20)
    parser.add_argument("--lr", type=float, default=6e-3)
    parser.add_argument("--final-lr", type=float, default=6e-4)
    parser.add_argument("--noise", type=float, default=0.3)
    parser.add_argument("--crop-steps", type=int, default=50)
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--ema", type=float, default=0.98)
    parser.add_argument("--seed", type=int, default=8)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    width = 60
    origins, directions, pixels = photographs(np.linspace(0, 2 * math.pi, 24, endpoint=False), width)
    held = photographs(np.linspace(0.13, 2 * math.pi + 0.13, 6, endpoint=False), width)
    column = torch.arange(len(origins)) % width
    central = ((column > width // 4) & (column < 3 * width // 4)).nonzero().squeeze(1).numpy()

    coarse, fine = Field(), Field()
    slow = [Field(), Field()]
    for s, f in zip(slow, (coarse, fine)):
        s.load_state_dict(f.state_dict())
        s.requires_grad_(False)
    params = list(coarse.parameters()) + list(fine.parameters())
    optimizer = torch.optim.Adam(params, lr=args.lr, eps=1e-7)
    order, at = np.random.permutation(len(origins)), 0
    history = []
    start = time.time()
    for step in range(args.steps):
        if step < args.crop_steps:
            rows = central[np.random.randint(0, len(central), args.rays)]
        else:
            if at + args.rays > len(order):
                order, at = np.random.permutation(len(origins)), 0
            rows = order[at : at + args.rays]
            at += args.rays
        rows = torch.from_numpy(rows)
        background = torch.rand(args.rays, 3)
        truth = pixels[rows, :3] + (1 - pixels[rows, 3:]) * background
        noise = args.noise * max(0.0, 1 - step / (args.steps / 2))
        first, second = render(coarse, fine, origins[rows], directions[rows], args, background, True, noise)
        loss_fine = ((second - truth) ** 2).mean()
        loss = loss_fine + 0.5 * ((first - truth) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params, 0.05)
        optimizer.step()
        for group in optimizer.param_groups:
            group["lr"] = args.lr * (args.final_lr / args.lr) ** ((step + 1) / args.steps)
        with torch.no_grad():
            decay = min(args.ema, (1 + step) / (10 + step))
            for s, f in zip(slow, (coarse, fine)):
                for a, b in zip(s.parameters(), f.parameters()):
                    a.mul_(decay).add_(b, alpha=1 - decay)
        history.append(loss_fine.item())
        if (step + 1) % args.every == 0:
            mean = sum(history[-args.every :]) / args.every
            print(f"step {step + 1} loss {mean:.5f} psnr {psnr(slow[0], slow[1], held, args):.3f} raw {psnr(coarse, fine, held, args):.3f}", flush=True)
    torch.save({"coarse": slow[0].state_dict(), "fine": slow[1].state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}, "scan.pt")


if __name__ == "__main__":
    main()
