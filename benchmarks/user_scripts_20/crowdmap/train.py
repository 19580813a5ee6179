import argparse
import copy
import json
import logging
import os
import random
import time

import numpy as np
import torch
from torch.utils.data import DataLoader

from data import CrowdDataset
from model import CSRNet, CountLoss

log = logging.getLogger("crowdmap")


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--data", required=True, help="folder with train/ and test/")
    p.add_argument("--out", default="runs/csrnet")
    p.add_argument("--epochs", type=int, default=400)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--crop", type=int, default=384)
    p.add_argument("--lr", type=float, default=1e-4)
    p.add_argument("--wd", type=float, default=1e-4)
    p.add_argument("--warm", type=int, default=5, help="epochs with a frozen front end")
    p.add_argument("--seed", type=int, default=3035)
    p.add_argument("--scratch", action="store_true", help="no ImageNet weights")
    p.add_argument("--resume", default="")
    p.add_argument("--check-decoder", action="store_true", help="compare two seeds of the first step and leave")
    return p.parse_args()


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)


class Meter:
    def __init__(self):
        self.sum, self.n = 0.0, 0

    def add(self, value, n=1):
        self.sum += value * n
        self.n += n

    @property
    def avg(self):
        return self.sum / max(1, self.n)


def train_epoch(net, loader, crit, opt, device, epoch):
    net.train()
    loss_m, mae_m = Meter(), Meter()
    t0 = time.time()
    for step, (img, dens, count) in enumerate(loader):
        img = img.to(device)
        dens = dens.to(device)
        pred = net(img)
        loss = crit(pred, dens)

        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        opt.step()

        loss_m.add(loss.item(), img.size(0))
        # absolute error of every crop
        for b in range(img.size(0)):
            err = abs(pred[b].sum().item() - dens[b].sum().item())
            mae_m.add(err)
        if step % 20 == 0:
            log.info("epoch %d step %d/%d loss %.4f mae %.2f %.1fs",
                     epoch, step, len(loader), loss_m.avg, mae_m.avg, time.time() - t0)
    return loss_m.avg, mae_m.avg


def evaluate(net, loader, device):
    """Full images, one at a time: every image has its own size."""
    net.eval()
    errors, squares = [], []
    for img, dens, count in loader:
        pred = net(img.to(device))
        diff = pred.sum().item() - count.item()
        errors.append(abs(diff))
        squares.append(diff ** 2)
    return float(np.mean(errors)), float(np.sqrt(np.mean(squares)))


def check_decoder(args, device):
    """One-off: the same seed must give the same first loss, bit by bit, before a long run is started."""
    losses = []
    for _ in range(2):
        seed_everything(args.seed)
        net = CSRNet(pretrained=False).to(device)
        opt = torch.optim.SGD(net.parameters(), lr=1e-3)
        x = torch.rand(2, 3, 64, 64).to(device)
        t = torch.rand(2, 1, 8, 8).to(device)
        for _ in range(2):
            loss = CountLoss()(net(x), t)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
    assert losses[:2] == losses[2:], losses
    log.info("first steps agree: %s", losses[:2])


def set_front(net, trainable):
    for p in net.front.parameters():
        p.requires_grad = trainable


def main():
    args = get_args()
    os.makedirs(args.out, exist_ok=True)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s",
                        handlers=[logging.StreamHandler(), logging.FileHandler(os.path.join(args.out, "log.txt"))])
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if args.check_decoder:
        check_decoder(args, device)
        return
    seed_everything(args.seed)
    with open(os.path.join(args.out, "args.json"), "w") as f:
        json.dump(copy.deepcopy(vars(args)), f, indent=2)

    train_set = CrowdDataset(os.path.join(args.data, "train"), crop=args.crop, train=True)
    test_set = CrowdDataset(os.path.join(args.data, "test"), train=False)
    train_loader = DataLoader(train_set, batch_size=args.batch, shuffle=True, drop_last=True)
    test_loader = DataLoader(test_set, batch_size=1, shuffle=False)
    log.info("%d train, %d test images", len(train_set), len(test_set))

    net = CSRNet(pretrained=not args.scratch).to(device)
    crit = CountLoss()
    opt = torch.optim.AdamW(net.parameters(), lr=args.lr, weight_decay=args.wd)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=args.epochs)

    start, best = 0, float("inf")
    if args.resume:
        ck = torch.load(args.resume, map_location=device)
        net.load_state_dict(ck["net"])
        opt.load_state_dict(ck["opt"])
        sched.load_state_dict(ck["sched"])
        start, best = ck["epoch"] + 1, ck["best"]

    for epoch in range(start, args.epochs):
        set_front(net, epoch >= args.warm)
        loss, mae = train_epoch(net, train_loader, crit, opt, device, epoch)
        sched.step()
        test_mae, test_rmse = evaluate(net, test_loader, device)
        log.info("== epoch %d loss %.4f train mae %.2f | test mae %.2f rmse %.2f | lr %.2e",
                 epoch, loss, mae, test_mae, test_rmse, sched.get_last_lr()[0])
        ck = {"net": net.state_dict(), "opt": opt.state_dict(), "sched": sched.state_dict(),
              "epoch": epoch, "best": min(best, test_mae)}
        torch.save(ck, os.path.join(args.out, "last.pt"))
        if test_mae < best:
            best = test_mae
            torch.save(net.state_dict(), os.path.join(args.out, "best.pt"))
    log.info("best mae %.2f", best)


if __name__ == "__main__":
    main()
