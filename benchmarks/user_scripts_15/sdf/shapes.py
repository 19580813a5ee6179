"""Analytic solids stand in for the scans; ground truth distance and volume are known."""
import math

import torch
from torch import Tensor


def gyroid_ball(p: Tensor, r: float = 0.8, k: float = 5.0, t: float = 0.12) -> Tensor:
    ball = p.norm(dim=-1) - r
    q = p * k
    g = (q[..., 0].sin() * q[..., 1].cos() + q[..., 1].sin() * q[..., 2].cos()
         + q[..., 2].sin() * q[..., 0].cos())
    return torch.maximum(ball, (g.abs() - t * k) / (1.8 * k))


def torus_knot_ish(p: Tensor) -> Tensor:
    q = torch.stack([p[..., :2].norm(dim=-1) - 0.55, p[..., 2]], -1)
    a = torch.atan2(p[..., 1], p[..., 0]) * 1.5
    c = torch.stack([a.cos(), a.sin()], -1) * 0.18
    return torch.minimum((q - c).norm(dim=-1), (q + c).norm(dim=-1)) - 0.1


SOLIDS = {"gyroid": gyroid_ball, "knot": torus_knot_ish}


@torch.no_grad()
def surface_points(name: str, n: int, gen: torch.Generator, device) -> Tensor:
    """Rejection near the zero level, then a few Newton steps (numerical gradient)."""
    f, out, have = SOLIDS[name], [], 0
    while have < n:
        p = torch.rand(200_000, 3, generator=gen, device=device) * 2 - 1
        p = p[f(p).abs() < 0.03]
        for _ in range(8):
            e = 1e-3 * torch.eye(3, device=device)
            grad = torch.stack([(f(p + d) - f(p - d)) / 2e-3 for d in e], -1)
            p = p - 0.7 * f(p).unsqueeze(-1) * grad / grad.square().sum(-1, keepdim=True).clamp_min(1e-4)
        p = p[f(p).abs() < 1e-3]
        out.append(p)
        have += len(p)
    return torch.cat(out)[:n]


@torch.no_grad()
def local_sigma(p: Tensor, k: int, chunk: int = 2048) -> Tensor:
    """Distance to the k-th neighbour, as in IGR: the scale of the samples off the surface."""
    return torch.cat([torch.cdist(c, p).kthvalue(k + 1, dim=1).values for c in p.split(chunk)])


def fibonacci_directions(n: int) -> Tensor:
    i = torch.arange(n, dtype=torch.float64) + 0.5
    phi = torch.acos(1 - 2 * i / n)
    th = math.pi * (1 + 5 ** 0.5) * i
    return torch.stack([th.cos() * phi.sin(), th.sin() * phi.sin(), phi.cos()], -1).float()
