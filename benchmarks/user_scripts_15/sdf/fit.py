"""Fit a neural signed distance field to a point cloud (implicit geometric regularisation).

    python fit.py --solid gyroid --steps 30000
Stops and goes on: python fit.py --resume out/last.pt
"""
import argparse
import copy
import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from field import Field
from shapes import SOLIDS, fibonacci_directions, local_sigma, surface_points


@dataclass
class Config:
    solid: str = "gyroid"
    points: int = 400_000
    knn: int = 50
    bands: int = 6
    width: int = 512
    depth: int = 8
    batch: int = 16384
    uniform: int = 4096
    steps: int = 30_000
    lr: float = 5e-4
    warmup: int = 500
    lambda_eik: float = 0.1
    lambda_off: float = 0.05
    ema: float = 0.999
    grid: int = 192
    chunk: int = 262_144
    eval_every: int = 2000
    log_every: int = 200
    seed: int = 0
    out: str = "out"
    resume: str = ""


def parse() -> Config:
    ap = argparse.ArgumentParser(description=__doc__)
    for f in dataclasses.fields(Config):
        ap.add_argument(f"--{f.name.replace('_', '-')}", type=f.type, default=f.default)
    return Config(**vars(ap.parse_args()))


@torch.no_grad()
def update_ema(ema: Field, model: Field, decay: float) -> None:
    torch._foreach_lerp_(list(ema.parameters()), list(model.parameters()), 1 - decay)


@torch.no_grad()
def evaluate(field: Field, cfg: Config, probes: Tensor, dirs: Tensor, device) -> dict:
    field.eval()
    axis = torch.linspace(-1, 1, cfg.grid)
    grid = torch.stack(torch.meshgrid(axis, axis, axis, indexing="ij"), -1).view(-1, 3)
    truth = SOLIDS[cfg.solid]
    vals, ref = [], []
    for c in grid.split(cfg.chunk):
        c = c.to(device)
        vals.append(field(c).cpu())
        ref.append(truth(c).cpu())
    vals, ref = torch.cat(vals), torch.cat(ref)
    inside, want = vals < 0, ref < 0
    iou = (inside & want).sum().item() / max(1, (inside | want).sum().item())
    # soft occupancy, summed over millions of cells: float32 would lose the last digits
    cell = (2.0 / (cfg.grid - 1)) ** 3
    volume = torch.sigmoid(-vals.double() * cfg.grid).sum().item() * cell
    # normals at the surface need a gradient, although nothing is trained here
    _, n = field.value_and_normal(probes, create_graph=False)
    eik = (n.norm(dim=-1) - 1).abs().mean().item()
    hit = torch.full((len(dirs),), 1.7, device=device)
    for _ in range(24):                              # sphere tracing towards the centre
        hit = hit - 0.9 * field(dirs * hit.unsqueeze(-1)).clamp(-0.1, 0.4)
    field.train()
    return {"iou": iou, "volume": volume, "eikonal": eik, "hit": hit.mean().item()}


def main() -> None:
    cfg = parse()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(cfg.seed)
    gen = torch.Generator(device).manual_seed(cfg.seed + 1)
    out = Path(cfg.out)
    out.mkdir(parents=True, exist_ok=True)

    cloud = surface_points(cfg.solid, cfg.points, gen, device)
    sigma = local_sigma(cloud, cfg.knn).unsqueeze(-1)
    probes = cloud[: cfg.batch]
    dirs = fibonacci_directions(2048).to(device)

    model = Field(cfg.bands, cfg.width, cfg.depth).to(device)
    ema = copy.deepcopy(model).requires_grad_(False)
    opt = torch.optim.Adam(model.parameters(), lr=cfg.lr)

    def factor(step: int) -> float:
        if step < cfg.warmup:
            return (step + 1) / cfg.warmup
        t = (step - cfg.warmup) / max(1, cfg.steps - cfg.warmup)
        return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * t))

    sched = torch.optim.lr_scheduler.LambdaLR(opt, factor)
    start = 0
    if cfg.resume:
        s = torch.load(cfg.resume, map_location=device)
        model.load_state_dict(s["model"])
        ema.load_state_dict(s["ema"])
        opt.load_state_dict(s["opt"])
        sched.load_state_dict(s["sched"])
        gen.set_state(s["gen"].cpu())
        start = s["step"]

    for step in range(start, cfg.steps):
        idx = torch.randint(len(cloud), (cfg.batch,), generator=gen, device=device)
        surf = cloud[idx]
        near = surf + sigma[idx] * torch.randn(surf.shape, generator=gen, device=device)
        far = torch.rand(cfg.uniform, 3, generator=gen, device=device) * 2 - 1

        d_surf, n_surf = model.value_and_normal(surf)
        d_off, n_off = model.value_and_normal(torch.cat([near, far]))
        eik = ((torch.cat([n_surf, n_off]).norm(dim=-1) - 1) ** 2).mean()
        off = torch.exp(-100 * d_off[cfg.batch:].abs()).mean()
        loss = d_surf.abs().mean() + cfg.lambda_eik * eik + cfg.lambda_off * off
        if not torch.isfinite(loss):
            raise FloatingPointError(f"step {step}: loss is {loss}")

        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        sched.step()
        update_ema(ema, model, cfg.ema)

        if (step + 1) % cfg.log_every == 0:
            print(f"{step + 1:6d}  loss {loss.item():.6f}  eik {eik.item():.6f}  "
                  f"lr {sched.get_last_lr()[0]:.2e}")
        if (step + 1) % cfg.eval_every == 0:
            r = evaluate(ema, cfg, probes, dirs, device)
            print(f"{step + 1:6d}  " + "  ".join(f"{k} {v:.6f}" for k, v in r.items()))
            torch.save({"model": model.state_dict(), "ema": ema.state_dict(), "opt": opt.state_dict(),
                        "sched": sched.state_dict(), "gen": gen.get_state(), "step": step + 1},
                       out / "last.pt")


if __name__ == "__main__":
    main()
