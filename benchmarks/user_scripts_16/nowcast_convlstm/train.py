import argparse
import os
import random

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from data import RadarSequences, list_events, make_events
from model import FrameCritic, Nowcaster
from utils import AverageMeter, CSIMeter, Timer, save_checkpoint, set_seed


def get_args():
    p = argparse.ArgumentParser("radar nowcasting")
    p.add_argument("--data-root", default="./vil_events")
    p.add_argument("--num-events", type=int, default=8000, help="only used when data-root is missing")
    p.add_argument("--frames", type=int, default=25)
    p.add_argument("--size", type=int, default=128)
    p.add_argument("--n-in", type=int, default=10)
    p.add_argument("--n-out", type=int, default=10)
    p.add_argument("--hidden", type=int, default=64)
    p.add_argument("--layers", type=int, default=3)
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--epochs", type=int, default=60)
    p.add_argument("--lr", type=float, default=4e-4)
    p.add_argument("--adv-weight", type=float, default=0.01)
    p.add_argument("--clip", type=float, default=1.0)
    p.add_argument("--workers", type=int, default=4)
    p.add_argument("--log-interval", type=int, default=50)
    p.add_argument("--out", default="runs/nowcast")
    p.add_argument("--seed", type=int, default=1)
    return p.parse_args()


THRESHOLDS = [16, 74, 133, 160]
WEIGHTS = [1.0, 2.0, 5.0, 10.0, 30.0]


def weighted_mae(pred, target):
    """Balanced loss of the HKO benchmark: heavy rain counts more."""
    bounds = torch.tensor(THRESHOLDS).to(pred.device) / 255.0
    weights = torch.tensor(WEIGHTS).to(pred.device)
    w = weights[torch.bucketize(target.contiguous(), bounds)]
    return (w * (pred - target).abs()).mean() + 0.5 * (w * (pred - target) ** 2).mean()


def train_epoch(args, epoch, model, disc, opt_g, opt_d, loader, device):
    model.train()
    disc.train()
    g_meter, d_meter = AverageMeter(), AverageMeter()
    ratio = max(0.0, 1.0 - epoch / (0.5 * args.epochs))
    for it, (x, y) in enumerate(loader):
        x = x.to(device)
        y = y.to(device)
        force = [random.random() < ratio for _ in range(args.n_out)]

        pred = model(x, y, force)
        rec = weighted_mae(pred, y)
        adv = -disc(x[:, -1], pred).mean()
        loss = rec + args.adv_weight * adv
        opt_g.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        opt_g.step()

        opt_d.zero_grad()
        real = disc(x[:, -1], y)
        fake = disc(x[:, -1], pred.detach())
        d_loss = F.relu(1 - real).mean() + F.relu(1 + fake).mean()
        d_loss.backward()
        opt_d.step()

        g_meter.update(rec.item(), x.size(0))
        d_meter.update(d_loss.item(), x.size(0))
        if it % args.log_interval == 0:
            print("epoch %d it %d/%d rec %.4f d %.4f tf %.2f"
                  % (epoch, it, len(loader), g_meter.avg, d_meter.avg, ratio), flush=True)
    return g_meter.avg, d_meter.avg


@torch.no_grad()
def validate(model, loader, device):
    model.eval()
    meter = AverageMeter()
    csi = CSIMeter(THRESHOLDS, device)
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        pred = model(x)
        meter.update(weighted_mae(pred, y).item(), x.size(0))
        csi.update(pred, y)
    return meter.avg, csi.compute()


def main():
    args = get_args()
    set_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if not os.path.isdir(args.data_root):
        make_events(args.data_root, args.num_events, args.frames, args.size, args.seed)
    train_files, val_files = list_events(args.data_root)
    train_set = RadarSequences(train_files, args.n_in, args.n_out, augment=True)
    val_set = RadarSequences(val_files, args.n_in, args.n_out)
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True,
                              num_workers=args.workers, drop_last=True)
    val_loader = DataLoader(val_set, batch_size=args.batch_size, num_workers=args.workers)

    model = Nowcaster(args.hidden, args.layers, args.n_out).to(device)
    disc = FrameCritic().to(device)
    opt_g = torch.optim.Adam(model.parameters(), lr=args.lr, betas=(0.5, 0.999))
    opt_d = torch.optim.Adam(disc.parameters(), lr=args.lr, betas=(0.5, 0.999))
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt_g, args.epochs)

    timer = Timer()
    best = float("inf")
    for epoch in range(args.epochs):
        rec, d = train_epoch(args, epoch, model, disc, opt_g, opt_d, train_loader, device)
        val, csi = validate(model, val_loader, device)
        sched.step()
        print("== epoch %d train %.4f critic %.4f val %.4f csi %s (%.0fs)"
              % (epoch, rec, d, val, " ".join("%.3f" % c for c in csi), timer()), flush=True)
        if val < best:
            best = val
            save_checkpoint(os.path.join(args.out, "best.pt"), epoch, model, disc, opt_g, opt_d)


if __name__ == "__main__":
    main()
