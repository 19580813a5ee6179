"""Masked autoencoder on multispectral chips; everything lives on one GPU.

The chips (uint16, 10 bands, 96 x 96) fit into the memory of the device, augmentation happens there,
the step is compiled, and the host looks at the loss only every `log_every` steps.
"""
from __future__ import annotations

import argparse
import contextlib
import math
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from scenes import N_CLASSES, load_or_make
from vit import MAE


@dataclass(frozen=True)
class Config:
    root: str = "chips"
    out: str = "out"
    n_train: int = 80_000
    n_probe: int = 6_000
    n_test: int = 3_000
    bands: int = 10
    size: int = 96
    patch: int = 8
    dim: int = 768
    depth: int = 12
    heads: int = 12
    dec_dim: int = 384
    dec_depth: int = 4
    dec_heads: int = 6
    mask_ratio: float = 0.75
    batch_size: int = 512
    accum: int = 1
    epochs: int = 200
    warmup_epochs: int = 10
    lr: float = 6e-4
    min_lr: float = 1e-6
    weight_decay: float = 0.05
    clip: float = 3.0
    log_every: int = 50
    probe_every: int = 20
    probe_steps: int = 500
    seed: int = 5
    compile: int = 1
    resume: str = ""

    @classmethod
    def from_cli(cls) -> Config:
        ap = argparse.ArgumentParser(description=__doc__)
        for f in fields(cls):
            ap.add_argument("--" + f.name.replace("_", "-"), type=type(f.default), default=f.default)
        return cls(**vars(ap.parse_args()))


def param_groups(model: MAE, wd: float) -> list[dict]:
    decay = [p for p in model.parameters() if p.ndim >= 2 and p is not model.mask_token]
    rest = [p for p in model.parameters() if p.ndim < 2 or p is model.mask_token]
    return [{"params": decay, "weight_decay": wd}, {"params": rest, "weight_decay": 0.0}]


def lr_at(step: int, total: int, warmup: int, cfg: Config) -> float:
    if step < warmup:
        return cfg.lr * (step + 1) / warmup
    t = (step - warmup) / max(1, total - warmup)
    return cfg.min_lr + 0.5 * (cfg.lr - cfg.min_lr) * (1 + math.cos(math.pi * t))


class Chips:
    """All chips of a split on the device; uint16 there, float32 only for a batch."""

    def __init__(self, x: np.ndarray, device: torch.device, stats: tuple[Tensor, Tensor] | None = None):
        self.x = torch.from_numpy(x.view(np.int16)).to(device)      # values stay below 2 ** 15
        if stats is None:
            # sums over 10^9 pixels: double
            s = torch.zeros(2, x.shape[1], dtype=torch.float64, device=device)
            for c in self.x.split(256):
                c = c.double()
                s[0] += c.sum((0, 2, 3))
                s[1] += (c * c).sum((0, 2, 3))
            m = s[0] / (self.x.numel() / x.shape[1])
            sd = (s[1] / (self.x.numel() / x.shape[1]) - m * m).sqrt()
            stats = m.float().view(1, -1, 1, 1), sd.float().view(1, -1, 1, 1)
        self.stats = stats

    def __len__(self) -> int:
        return len(self.x)

    def get(self, idx: Tensor) -> Tensor:
        return (self.x[idx].float() - self.stats[0]) / self.stats[1]


def augment(x: Tensor, gen: torch.Generator) -> Tensor:
    """Dihedral group, per chip: nothing here needs the host."""
    r = torch.randint(0, 8, (len(x), 1, 1, 1), generator=gen, device=x.device)
    x = torch.where((r & 1).bool(), x.flip(-1), x)
    x = torch.where((r & 2).bool(), x.flip(-2), x)
    return torch.where((r & 4).bool(), x.transpose(-1, -2), x)


def probe(model: MAE, train: Chips, y: Tensor, test: Chips, y_test: Tensor, cfg: Config, amp) -> float:
    """Linear probe on frozen features, a fresh classifier each time with its own generator."""
    model.eval()

    @torch.inference_mode()
    def feats(chips: Chips) -> Tensor:
        out = []
        for idx in torch.arange(len(chips), device=y.device).split(cfg.batch_size):
            with amp():
                out.append(model.features(chips.get(idx)).float())
        return torch.cat(out)

    fx, ft = feats(train).clone(), feats(test)
    m, s = fx.mean(0), fx.std(0) + 1e-6
    fx, ft = (fx - m) / s, (ft - m) / s
    gen = torch.Generator(y.device).manual_seed(9)
    w = torch.zeros(fx.size(1), N_CLASSES, device=y.device, requires_grad=True)
    b = torch.zeros(N_CLASSES, device=y.device, requires_grad=True)
    opt = torch.optim.SGD([w, b], lr=0.1, momentum=0.9)
    for _ in range(cfg.probe_steps):
        idx = torch.randint(0, len(fx), (256,), generator=gen, device=y.device)
        loss = F.cross_entropy(fx[idx] @ w + b, y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    model.train()
    with torch.no_grad():
        pred = (ft @ w + b).argmax(1)
    return (pred == y_test).float().mean().item()


def main() -> None:
    cfg = Config.from_cli()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    cuda = device.type == "cuda"
    torch.manual_seed(cfg.seed)
    torch.set_float32_matmul_precision("high")
    amp = (lambda: torch.autocast("cuda", dtype=torch.bfloat16)) if cuda else contextlib.nullcontext

    root = Path(cfg.root)
    data = {k: load_or_make(root, n, cfg.bands, cfg.size, k)
            for k, n in (("train", cfg.n_train), ("probe", cfg.n_probe), ("test", cfg.n_test))}
    train = Chips(data["train"][0], device)
    probe_set, test_set = (Chips(data[k][0], device, train.stats) for k in ("probe", "test"))
    y_probe, y_test = (torch.from_numpy(data[k][1]).to(device) for k in ("probe", "test"))

    model = MAE(cfg.bands, cfg.size, cfg.patch, cfg.dim, cfg.depth, cfg.heads,
                cfg.dec_dim, cfg.dec_depth, cfg.dec_heads, cfg.mask_ratio).to(device)
    opt = torch.optim.AdamW(param_groups(model, cfg.weight_decay), lr=cfg.lr, betas=(0.9, 0.95), fused=cuda)
    step_fn = torch.compile(model) if cfg.compile and cuda else model
    gen = torch.Generator(device).manual_seed(cfg.seed)

    per_epoch = len(train) // (cfg.batch_size * cfg.accum)
    total, warmup = per_epoch * cfg.epochs, per_epoch * cfg.warmup_epochs
    step = first_epoch = 0
    if cfg.resume:
        state = torch.load(cfg.resume, map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        opt.load_state_dict(state["opt"])
        gen.set_state(state["gen"].cpu())
        step, first_epoch = state["step"], state["epoch"] + 1

    n_patches = (cfg.size // cfg.patch) ** 2
    window = torch.zeros((), device=device)
    t0 = time.perf_counter()
    for epoch in range(first_epoch, cfg.epochs):
        order = torch.randperm(len(train), generator=gen, device=device)
        for i in range(per_epoch):
            for g in opt.param_groups:
                g["lr"] = lr_at(step, total, warmup, cfg)
            for j in range(cfg.accum):
                k = (i * cfg.accum + j) * cfg.batch_size
                x = augment(train.get(order[k:k + cfg.batch_size]), gen)
                noise = torch.rand(len(x), n_patches, generator=gen, device=device)
                with amp():
                    loss = step_fn(x, noise) / cfg.accum
                loss.backward()
                window += loss.detach()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), cfg.clip)
            opt.step()
            opt.zero_grad(set_to_none=True)
            step += 1
            if step % cfg.log_every == 0:
                print(f"step {step:6d}  loss {window.item() / cfg.log_every:.6f}  "
                      f"norm {norm.item():.5f}  lr {opt.param_groups[0]['lr']:.3e}", flush=True)
                window.zero_()
        if (epoch + 1) % cfg.probe_every == 0 or epoch + 1 == cfg.epochs:
            acc = probe(model, probe_set, y_probe, test_set, y_test, cfg, amp)
            print(f"epoch {epoch}  linear probe {acc:.5f}")
            out = Path(cfg.out)
            out.mkdir(parents=True, exist_ok=True)
            torch.save({"model": model.state_dict(), "opt": opt.state_dict(), "gen": gen.get_state(),
                        "step": step, "epoch": epoch}, out / "last.pt")
            (out / "config.txt").write_text(repr(asdict(cfg)))
    if cuda:
        print(f"{time.perf_counter() - t0:.1f} s")


if __name__ == "__main__":
    main()
