#!/usr/bin/env python
"""land cover from 512 px tiles, 5 classes.  U-Net baseline, LB 0.713 (single fold)"""
import argparse
import os
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader

from dataset import CLASSES, IGNORE, TileDataset, draw_tiles
from loss import SegLoss
from unet import UNet

parser = argparse.ArgumentParser()
parser.add_argument('--root', default='tiles')
parser.add_argument('--n-tiles', type=int, default=4000)
parser.add_argument('--tile', type=int, default=512)
parser.add_argument('--crop', type=int, default=384)
parser.add_argument('--fold', type=int, default=0)
parser.add_argument('--width', type=int, default=48)
parser.add_argument('--depth', type=int, default=4)
parser.add_argument('--bs', type=int, default=16)
parser.add_argument('--epochs', type=int, default=60)
parser.add_argument('--lr', type=float, default=0.02)
parser.add_argument('--workers', type=int, default=4)
parser.add_argument('--tta-every', type=int, default=10, help='validate with 4 rotations every so many epochs')
parser.add_argument('--seed', type=int, default=2019)
args = parser.parse_args()
use_cuda = torch.cuda.is_available()


def seed_everything(seed):
    random.seed(seed)
    os.environ['PYTHONHASHSEED'] = str(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)


def worker_seed(worker_id):
    # numpy and random would be equal in all workers (kaggle forum, topic 96213)
    s = torch.initial_seed() % 2 ** 32
    np.random.seed(s)
    random.seed(s)


def confusion(pred, target, n):
    k = target != IGNORE
    return np.bincount(n * target[k].astype(int) + pred[k], minlength=n * n).reshape(n, n)


def iou(cm):
    return np.diag(cm) / np.maximum(cm.sum(0) + cm.sum(1) - np.diag(cm), 1)


class AverageMeter(object):
    def __init__(self):
        self.sum, self.n = 0., 0

    def update(self, v, n=1):
        self.sum += v * n
        self.n += n

    @property
    def avg(self):
        return self.sum / max(self.n, 1)


def train_epoch(model, loader, criterion, optimizer, epoch):
    model.train()
    meter = AverageMeter()
    cm = np.zeros((len(CLASSES), len(CLASSES)), dtype=np.int64)
    skipped = 0
    for it, (img, mask, _) in enumerate(loader):
        # poly schedule
        t = (epoch * len(loader) + it) / float(args.epochs * len(loader))
        for g in optimizer.param_groups:
            g['lr'] = args.lr * (1 - t) ** 0.9
        if use_cuda:
            img = img.cuda()
            mask = mask.cuda()
        out = model(img)
        loss = criterion(out, mask)
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        # one broken tile gave inf once and ruined a night
        if not np.isfinite(norm.item()):
            skipped += 1
            continue
        optimizer.step()
        meter.update(loss.item(), img.size(0))
        pred = out.argmax(1).detach().cpu().numpy()
        cm += confusion(pred, mask.cpu().numpy(), len(CLASSES))
        torch.cuda.empty_cache()
    return meter.avg, iou(cm), skipped


def validate(model, loader, criterion, tta=False):
    model.eval()
    meter = AverageMeter()
    cm = np.zeros((len(CLASSES), len(CLASSES)), dtype=np.int64)
    per_tile = {}
    for img, mask, names in loader:
        if use_cuda:
            img, mask = img.cuda(), mask.cuda()
        out = model(img)
        if tta:
            prob = F.softmax(out, 1)
            for k in (1, 2, 3):
                turned = model(torch.rot90(img, k, (2, 3)))
                prob = prob + torch.rot90(F.softmax(turned, 1), -k, (2, 3))
            pred = prob.argmax(1)
        else:
            pred = out.argmax(1)
        meter.update(criterion(out, mask).item(), img.size(0))
        pred, mask = pred.cpu().numpy(), mask.cpu().numpy()
        cm += confusion(pred, mask, len(CLASSES))
        for p, m, name in zip(pred, mask, names):
            per_tile[name] = iou(confusion(p, m, len(CLASSES))).mean()
    return meter.avg, iou(cm), per_tile


def main():
    seed_everything(args.seed)
    root = '%s_%d_%d' % (args.root, args.n_tiles, args.tile)
    if not os.path.exists(root):
        draw_tiles(root, args.n_tiles, args.tile)
    ids = list(range(args.n_tiles))
    val_ids = [i for i in ids if i % 10 == args.fold]
    trn_ids = [i for i in ids if i % 10 != args.fold]

    train_loader = DataLoader(TileDataset(root, trn_ids, args.crop), batch_size=args.bs, shuffle=True,
                              num_workers=args.workers, drop_last=True, worker_init_fn=worker_seed)
    val_loader = DataLoader(TileDataset(root, val_ids), batch_size=8, shuffle=False, num_workers=args.workers)

    model = UNet(len(CLASSES), args.width, args.depth)
    if use_cuda:
        model = model.cuda()
    model = nn.DataParallel(model)
    criterion = SegLoss([0.6, 1.5, 1.2, 1.0, 0.8], IGNORE)
    decay = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.SGD([{'params': decay, 'weight_decay': 1e-4}, {'params': rest}],
                                lr=args.lr, momentum=0.9, nesterov=True)

    best = 0
    for epoch in range(args.epochs):
        t0 = time.time()
        loss, tr_iou, skipped = train_epoch(model, train_loader, criterion, optimizer, epoch)
        tta = (epoch + 1) % args.tta_every == 0 or epoch + 1 == args.epochs
        vloss, v_iou, per_tile = validate(model, val_loader, criterion, tta)
        print('epoch %02d  loss %.4f  iou %.4f | val %.4f  iou %.4f  [%s]%s  skipped %d  time %.1fs' % (
            epoch, loss, tr_iou.mean(), vloss, v_iou.mean(), ' '.join('%.3f' % v for v in v_iou),
            ' tta' if tta else '', skipped, time.time() - t0))
        if v_iou.mean() > best:
            best = v_iou.mean()
            torch.save(model.state_dict(), 'best_fold%d.pth' % args.fold)
            worst = sorted(per_tile, key=per_tile.get)[:5]
            with open('worst_fold%d.txt' % args.fold, 'w') as f:
                f.write('\n'.join('%s %.4f' % (n, per_tile[n]) for n in worst))
    print('best mIoU %.4f' % best)


if __name__ == '__main__':
    main()
