#!/usr/bin/env python
from __future__ import annotations

import argparse
import random
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader

from srlite.data import FullImageDataset, PatchDataset
from srlite.engine import EMA, train_epoch, validate
from srlite.losses import SRLoss
from srlite.net import SRNet
from srlite.textures import make_pictures


def get_args() -> argparse.Namespace:
    p = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    p.add_argument("--out", type=Path, default=Path("out"))
    p.add_argument("--n-train", type=int, default=400)
    p.add_argument("--n-val", type=int, default=40)
    p.add_argument("--image-size", type=int, default=480)
    p.add_argument("--scale", type=int, default=4, choices=(2, 4))
    p.add_argument("--patch", type=int, default=192, help="of the high resolution picture")
    p.add_argument("--repeat", type=int, default=20)
    p.add_argument("--sigma", type=float, default=2.0, help="noise on the small picture, in grey values")
    p.add_argument("--channels", type=int, default=64)
    p.add_argument("--blocks", type=int, default=16)
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--epochs", type=int, default=100)
    p.add_argument("--lr", type=float, default=2e-4)
    p.add_argument("--clip", type=float, default=0.5)
    p.add_argument("--ema", type=float, default=0.999)
    p.add_argument("--workers", type=int, default=8)
    p.add_argument("--print-every", type=int, default=50)
    p.add_argument("--seed", type=int, default=0)
    return p.parse_args()


def main() -> None:
    args = get_args()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    val_dir = args.out / "val"
    val_dir.mkdir(parents=True, exist_ok=True)

    train_set = PatchDataset(make_pictures(args.n_train, args.image_size, 1), args.patch, args.scale, args.repeat,
                             args.sigma)
    val_set = FullImageDataset(make_pictures(args.n_val, args.image_size, 2), args.scale)
    train_loader = DataLoader(train_set, args.batch_size, shuffle=True, num_workers=args.workers, drop_last=True)
    val_loader = DataLoader(val_set, batch_size=1, num_workers=args.workers)

    model = SRNet(args.scale, args.channels, args.blocks).to(device)
    ema = EMA(model, args.ema)
    criterion = SRLoss().to(device)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=args.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs * len(train_loader))
    scaler = torch.amp.GradScaler(device.type, enabled=device.type == "cuda")
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f} M parameters, {len(train_loader)} steps per epoch")

    best = 0.0
    for epoch in range(1, args.epochs + 1):
        loss, psnr = train_epoch(model, ema, train_loader, criterion, optimizer, scheduler, scaler, device, args, epoch)
        val, base = validate(ema.model, val_loader, device, args, val_dir)
        print(f"epoch {epoch:3d} | loss {loss:.5f} | train psnr {psnr:.3f} | val psnr {val:.3f} (bicubic {base:.3f})")
        if val > best:
            best = val
            torch.save({"ema": ema.model.state_dict(), "epoch": epoch, "psnr": val}, args.out / "best.pt")

    ema.model.load_state_dict(torch.load(args.out / "best.pt", map_location=device)["ema"])
    val, _ = validate(ema.model, val_loader, device, args, val_dir, ensemble=True)
    print(f"best val psnr {best:.3f}, with x8 ensemble {val:.3f}")


if __name__ == "__main__":
    main()
