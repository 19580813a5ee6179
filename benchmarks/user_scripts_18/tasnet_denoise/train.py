import argparse
import glob
import os
import random
import tempfile
import time

import numpy as np
import torch
import yaml
from torch.utils.data import DataLoader

from denoise.data import MixDataset, ValidDataset
from denoise.loss import si_snr
from denoise.model import ConvTasNet
from denoise.synth import build


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("-c", "--config", default="conf/base.yaml")
    ap.add_argument("--resume")
    args = ap.parse_args()
    cfg = yaml.safe_load(open(args.config))
    random.seed(cfg["seed"])
    np.random.seed(cfg["seed"])
    torch.manual_seed(cfg["seed"])
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cudnn.benchmark = True

    root = cfg["data"]["root"]
    if root is None:
        root = tempfile.mkdtemp(prefix="tasnet_")
        build(root, cfg["data"], cfg["seed"])
    files = sorted(glob.glob(os.path.join(root, "clean", "*.wav")))
    n_valid = cfg["data"]["n_valid"]
    train_set = MixDataset(root, files[n_valid:], cfg["data"], cfg["seed"])
    valid_set = ValidDataset(root, files[:n_valid], cfg["data"], cfg["seed"] + 1)
    train_loader = DataLoader(train_set, cfg["optim"]["batch_size"], shuffle=True, drop_last=True,
                              num_workers=cfg["data"]["workers"])
    valid_loader = DataLoader(valid_set, 1)      # whole utterances, all lengths differ

    model = ConvTasNet(**cfg["model"]).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg["optim"]["lr"],
                                 weight_decay=cfg["optim"]["weight_decay"])
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "min", factor=0.5,
                                                           patience=cfg["optim"]["patience"])
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f} M parameters, "
          f"{len(train_set)} / {len(valid_set)} utterances")
    start, best = 0, float("inf")
    if args.resume:
        state = torch.load(args.resume, map_location=device)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])
        start, best = state["epoch"] + 1, state["best"]

    for epoch in range(start, cfg["optim"]["epochs"]):
        t0 = time.time()
        train_set.set_epoch(epoch)
        model.train()
        total, norms = 0.0, []
        for step, (mix, clean) in enumerate(train_loader):
            mix, clean = mix.to(device), clean.to(device)
            est = model(mix)
            loss = -si_snr(est, clean).mean()
            if torch.isnan(loss):
                print(f"nan at step {step}, batch skipped")
                continue
            optimizer.zero_grad()
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), cfg["optim"]["clip"])
            norms.append(norm.item())
            optimizer.step()
            total += loss.item()
            if step % cfg["log_every"] == 0:
                print(f"  epoch {epoch} step {step:4d} si-snr {-loss.item():.3f} dB  |g| {np.median(norms):.3f}")

        model.eval()
        gain, vloss = 0.0, 0.0
        with torch.no_grad():
            for mix, clean in valid_loader:
                mix, clean = mix.to(device), clean.to(device)
                out = si_snr(model(mix), clean)
                vloss += -out.mean().item()
                gain += (out - si_snr(mix, clean)).mean().item()
        vloss /= len(valid_loader)
        scheduler.step(vloss)
        print(f"epoch {epoch}: train {total / len(train_loader):.4f} valid {vloss:.4f} "
              f"gain {gain / len(valid_loader):.3f} dB lr {optimizer.param_groups[0]['lr']:.1e} "
              f"({time.time() - t0:.1f} s)")
        if vloss < best:
            best = vloss
            if cfg["out"]:
                os.makedirs(cfg["out"], exist_ok=True)
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                            "scheduler": scheduler.state_dict(), "epoch": epoch, "best": best},
                           os.path.join(cfg["out"], "best.pt"))


if __name__ == "__main__":
    main()
