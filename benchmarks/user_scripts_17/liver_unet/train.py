"""Liver and lesion segmentation with Attention U-Net on 2.5D CT slices.

Code for the workshop paper; `python train.py` reproduces table 2 on one GPU.
"""
import argparse
import os
import random

import numpy as np
import torch
from torch.utils.data import DataLoader

from dataset import SliceDataset
from losses import DiceCELoss, volume_dice
from make_data import ensure_dataset
from unet import AttUNet


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)
    # the reviewers asked for bitwise reproducible runs
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--data", default="ct_data")
    p.add_argument("--n-train", type=int, default=60)
    p.add_argument("--n-val", type=int, default=12)
    p.add_argument("--depth", type=int, default=48, help="slices per patient")
    p.add_argument("--size", type=int, default=288)
    p.add_argument("--crop", type=int, default=256)
    p.add_argument("--base", type=int, default=64)
    p.add_argument("--levels", type=int, default=4)
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--epochs", type=int, default=60)
    p.add_argument("--lr", type=float, default=3e-4)
    p.add_argument("--val-every", type=int, default=1)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--out", default="checkpoints")
    return p.parse_args()


def train_epoch(model, loader, criterion, optimizer, scheduler, device, epoch):
    model.train()
    total, correct, pixels = 0.0, 0, 0
    for it, (img, seg) in enumerate(loader):
        img, seg = img.to(device), seg.to(device)
        optimizer.zero_grad()
        logits = model(img)
        loss = criterion(logits, seg)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        scheduler.step()
        total += loss.item()
        pred = logits.argmax(1)
        correct += (pred == seg).sum().item()
        pixels += seg.numel()
        if it % 50 == 0:
            print(f"  epoch {epoch} it {it}/{len(loader)} lr {scheduler.get_last_lr()[0]:.2e}")
    return total / len(loader), correct / pixels


def validate(model, loader, device, n_classes=3):
    model.eval()
    scores = []
    with torch.no_grad():
        for img, seg in loader:
            img = img.to(device)
            pred = model(img).argmax(1)
            scores.append(volume_dice(pred.cpu().numpy(), seg.numpy(), n_classes))
    return np.nanmean(np.array(scores, dtype=np.float64), axis=0)


def main():
    args = get_args()
    set_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    os.makedirs(args.out, exist_ok=True)
    ensure_dataset(args.data, args.n_train, args.n_val, args.depth, args.size)

    train_set = SliceDataset(args.data, "train", crop=args.crop)
    val_set = SliceDataset(args.data, "val")
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True, drop_last=True)
    # patients have different matrix sizes: one slice at a time
    val_loader = DataLoader(val_set, batch_size=1, shuffle=False)

    model = AttUNet(n_classes=3, base=args.base, depth=args.levels).to(device)
    n_par = sum(p.numel() for p in model.parameters())
    print(f"{len(train_set)} train slices, {len(val_set)} val slices, {n_par / 1e6:.2f}M parameters")
    criterion = DiceCELoss(class_weights=[0.2, 1.0, 2.0])
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-5)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=args.lr, total_steps=args.epochs * len(train_loader))

    best = -1.0
    for epoch in range(1, args.epochs + 1):
        loss, acc = train_epoch(model, train_loader, criterion, optimizer, scheduler, device, epoch)
        msg = f"epoch {epoch:3d} loss {loss:.4f} acc {acc:.4f}"
        if epoch % args.val_every == 0:
            dice = validate(model, val_loader, device)
            msg += f" dice liver {dice[0]:.4f} lesion {dice[1]:.4f}"
            if np.nanmean(dice) > best:
                best = float(np.nanmean(dice))
                torch.save(model.state_dict(), os.path.join(args.out, "best.pt"))
        print(msg)
    print(f"best mean dice {best:.4f}")


if __name__ == "__main__":
    main()
