"""Train the conditional ring diffusion model.

    python train.py --config conf/small.yaml optim.lr=3e-4
"""
import argparse
import os

import numpy as np
import torch

from ringdiff.data import make_loader
from ringdiff.diffusion import GaussianDiffusion
from ringdiff.models.unet import UNet
from ringdiff.utils import EMA, infinite, load_cfg, seed_all


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--config", default="conf/small.yaml")
    ap.add_argument("overrides", nargs="*")
    args = ap.parse_args()
    cfg = load_cfg(args.config, args.overrides)
    seed_all(cfg.seed)
    os.makedirs(cfg.out_dir, exist_ok=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"

    data = infinite(make_loader(cfg))
    model = UNet(cfg.model.width, cfg.model.emb_dim, cfg.model.heads, cfg.model.dropout).to(device)
    diff = GaussianDiffusion(cfg.diffusion.steps, cfg.diffusion.beta_start, cfg.diffusion.beta_end)
    opt = torch.optim.Adam(model.parameters(), lr=cfg.optim.lr, betas=tuple(cfg.optim.betas))
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / cfg.optim.warmup))
    ema = EMA(model, cfg.optim.ema)

    # loss by quarter of the time axis (figure 5)
    bucket_sum = np.zeros(4)
    bucket_cnt = np.zeros(4)
    running = 0.0
    for it in range(1, cfg.train.iters + 1):
        model.train()
        x, y = next(data)
        x, y = x.to(device), y.to(device)
        loss, per_sample, t = diff.loss(model, x, y, cfg.diffusion.p_uncond)
        opt.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), cfg.optim.grad_clip)
        opt.step()
        sched.step()
        ema.update(model)
        running += loss.item()

        for l, ti in zip(per_sample.cpu().numpy(), t.cpu().numpy()):
            q = ti * 4 // cfg.diffusion.steps
            bucket_sum[q] += l
            bucket_cnt[q] += 1

        if it % cfg.train.log_every == 0:
            b = " ".join(f"{s / max(c, 1):.3f}" for s, c in zip(bucket_sum, bucket_cnt))
            print(f"iter {it:5d} | loss {running / cfg.train.log_every:.4f} | |g| {norm:.3f} | quarters {b}")
            running = 0.0
            bucket_sum[:] = 0
            bucket_cnt[:] = 0

        if it % cfg.train.sample_every == 0:
            ema.swap(model)
            model.eval()
            imgs = diff.sample(model, torch.arange(4, device=device).repeat(2), cfg.data.size)
            ema.restore(model)
            np.save(os.path.join(cfg.out_dir, f"samples_{it}.npy"), imgs.detach().cpu().numpy())
            print(f"           samples: mean {imgs.mean().item():.4f} std {imgs.std().item():.4f}")

        if it % cfg.train.ckpt_every == 0:
            torch.save({"model": model.state_dict(), "ema": ema.shadow, "opt": opt.state_dict(), "it": it},
                       os.path.join(cfg.out_dir, "last.pt"))


if __name__ == "__main__":
    main()
