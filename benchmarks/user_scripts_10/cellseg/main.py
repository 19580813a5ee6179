from __future__ import annotations

import argparse
import random

import numpy as np
import torch
import yaml
from torch.utils.data import DataLoader

from data import CLASSES, CellDataset, prepare
from engine import Engine
from metrics import DiceCELoss, class_frequencies
from model import UNet


def build_loader(ds, cfg, train: bool) -> DataLoader:
    n = cfg["train"]["num_workers"]
    return DataLoader(
        ds, batch_size=cfg["train"]["batch_size"], shuffle=train, drop_last=train, num_workers=n,
        pin_memory=torch.cuda.is_available(), persistent_workers=n > 0,
    )


def main() -> None:
    ap = argparse.ArgumentParser()
    ap.add_argument("--config", default="configs/default.yaml")
    args = ap.parse_args()
    with open(args.config) as f:
        cfg = yaml.safe_load(f)

    random.seed(cfg["seed"])
    np.random.seed(cfg["seed"])
    torch.manual_seed(cfg["seed"])
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    dc, tc = cfg["data"], cfg["train"]
    prepare(dc["root"], dc["n_train"], dc["n_val"], dc["size"])
    train_ds = CellDataset(dc["root"], "train", augment=True)
    val_ds = CellDataset(dc["root"], "val")
    train_loader, val_loader = build_loader(train_ds, cfg, True), build_loader(val_ds, cfg, False)

    model = UNet(len(CLASSES), **cfg["model"]).to(device, memory_format=torch.channels_last)
    if tc["compile"]:
        model.compile()
    criterion = DiceCELoss(class_frequencies(train_ds.masks, len(CLASSES)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=tc["lr"], weight_decay=tc["weight_decay"],
                                  fused=device.type == "cuda")
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=tc["epochs"] * len(train_loader))
    print(f"{len(train_ds)} train / {len(val_ds)} val, {sum(p.numel() for p in model.parameters()) / 1e6:.2f}M parameters")

    best = Engine(model, criterion, optimizer, scheduler, device, cfg).fit(train_loader, val_loader)
    print(f"best mIoU {best:.4f}")


if __name__ == "__main__":
    main()
