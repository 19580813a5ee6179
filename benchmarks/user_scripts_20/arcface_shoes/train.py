"""
Visual search for shoes: ArcFace on SKU ids, evaluated as open-set retrieval.

    python train.py --root /data/shoes --csv /data/shoes/catalogue.csv --out runs/arc35

~310k train photos, 21k SKUs, 12k query / 48k gallery photos. 24 epochs.
"""
import argparse
import csv
import os
import random
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader

from data import TrainImages
from evaluate import evaluate
from model import ArcMargin, Embedder


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--root", default="/data/shoes")
    p.add_argument("--csv", default="/data/shoes/catalogue.csv")
    p.add_argument("--out", default="runs/default")
    p.add_argument("--epochs", type=int, default=24)
    p.add_argument("--batch-size", type=int, default=96)
    p.add_argument("--size", type=int, default=224)
    p.add_argument("--width", type=int, default=64)
    p.add_argument("--dim", type=int, default=512)
    p.add_argument("--lr", type=float, default=0.05)
    p.add_argument("--wd", type=float, default=5e-4)
    p.add_argument("--warmup-epochs", type=int, default=1)
    p.add_argument("--margin", type=float, default=0.35)
    p.add_argument("--seed", type=int, default=17)
    p.add_argument("--resume", default="")
    p.add_argument("--log-every", type=int, default=50)
    return p.parse_args()


def set_lr(opt, lr):
    for g in opt.param_groups:
        g["lr"] = lr


class Meter:
    def __init__(self):
        self.sum, self.n = 0.0, 0

    def update(self, v, n):
        self.sum += v * n
        self.n += n

    @property
    def avg(self):
        return self.sum / max(1, self.n)


def train_epoch(model, head, loader, opt, criterion, device, epoch, args, log):
    model.train()
    head.train()
    losses, accs = Meter(), Meter()
    t0 = time.time()
    for step, (images, labels) in enumerate(loader):
        images = images.to(device)
        labels = labels.to(device)
        if epoch < args.warmup_epochs:
            set_lr(opt, args.lr * (epoch * len(loader) + step + 1) / (args.warmup_epochs * len(loader)))

        emb = model(images)
        logits, cosine = head(emb, labels)
        loss = criterion(logits, labels)

        opt.zero_grad()
        loss.backward()
        opt.step()

        acc = (cosine.argmax(1) == labels).float().mean().item()
        losses.update(loss.item(), images.size(0))
        accs.update(acc, images.size(0))
        if step % args.log_every == 0:
            print(f"ep {epoch:02d} {step:5d}/{len(loader)}  loss {losses.avg:.4f}  acc {accs.avg:.4f}  "
                  f"lr {opt.param_groups[0]['lr']:.5f}  {time.time() - t0:.0f}s", flush=True)
            log.writerow([epoch, step, losses.avg, accs.avg])
    return losses.avg, accs.avg


def main():
    args = parse_args()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    os.makedirs(args.out, exist_ok=True)

    train_set = TrainImages(args.root, args.csv, args.size)
    loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True, drop_last=True)
    print(f"{len(train_set)} photos, {len(train_set.skus)} skus")

    model = Embedder(args.width, args.dim).to(device)
    head = ArcMargin(args.dim, len(train_set.skus), m=args.margin).to(device)
    params = list(model.parameters()) + list(head.parameters())
    opt = torch.optim.SGD(params, lr=args.lr, momentum=0.9, weight_decay=args.wd)
    sched = torch.optim.lr_scheduler.MultiStepLR(opt, milestones=[10, 16, 21], gamma=0.1)
    criterion = nn.CrossEntropyLoss()

    start, best = 0, 0.0
    if args.resume:
        ck = torch.load(args.resume, map_location="cpu")
        model.load_state_dict(ck["model"])
        head.load_state_dict(ck["head"])
        opt.load_state_dict(ck["opt"])
        sched.load_state_dict(ck["sched"])
        start, best = ck["epoch"] + 1, ck["best"]

    with open(os.path.join(args.out, "log.csv"), "a", newline="") as f:
        log = csv.writer(f)
        for epoch in range(start, args.epochs):
            loss, acc = train_epoch(model, head, loader, opt, criterion, device, epoch, args, log)
            sched.step()
            scores = evaluate(model, args, device)
            print(f"== epoch {epoch}: loss {loss:.4f} acc {acc:.4f} " + " ".join(f"{k} {v:.4f}" for k, v in scores.items()))
            f.flush()
            better = scores["R@1"] > best
            best = max(best, scores["R@1"])
            ck = {"model": model.state_dict(), "head": head.state_dict(), "opt": opt.state_dict(),
                  "sched": sched.state_dict(), "epoch": epoch, "best": best,
                  "width": args.width, "dim": args.dim}
            torch.save(ck, os.path.join(args.out, "last.pt"))
            if better:
                torch.save(ck, os.path.join(args.out, "best.pt"))


if __name__ == "__main__":
    main()
