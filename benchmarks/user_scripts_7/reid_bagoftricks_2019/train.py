# encoding: utf-8
"""Strong re-ID baseline (warmup, random erasing, label smoothing, last stride, BNNeck, center loss).

    python train.py --gpu 0 --output logs/market_s1
"""
from __future__ import print_function, absolute_import
import argparse
import os
import os.path as osp
import random
import time
from bisect import bisect_right

import numpy as np
import torch
from torch import nn
from torch.backends import cudnn
from torch.utils.data import DataLoader

from datasets import make_pedestrians, ReidImages, RandomIdentitySampler
from losses import CrossEntropyLabelSmooth, TripletLoss, CenterLoss, euclidean_dist
from modeling import Baseline
from utils.misc import AverageMeter, setup_logger, eval_func

parser = argparse.ArgumentParser(description='ReID baseline training')
parser.add_argument('--num-ids', type=int, default=751)
parser.add_argument('--per-id', type=int, default=17)
parser.add_argument('--height', type=int, default=256)
parser.add_argument('--width', type=int, default=128)
parser.add_argument('--base', type=int, default=64)
parser.add_argument('--depth', type=str, default='3,4,6,3')
parser.add_argument('-b', '--batch-size', type=int, default=64)
parser.add_argument('--num-instances', type=int, default=4)
parser.add_argument('-j', '--workers', type=int, default=0)
parser.add_argument('--epochs', type=int, default=120)
parser.add_argument('--lr', type=float, default=3.5e-4)
parser.add_argument('--center-weight', type=float, default=5e-4)
parser.add_argument('--log-period', type=int, default=20)
parser.add_argument('--eval-period', type=int, default=40)
parser.add_argument('--gpu', type=str, default='0')
parser.add_argument('--seed', type=int, default=1)
parser.add_argument('--output', type=str, default='')
args = parser.parse_args()


def make_optimizer(model, center_criterion):
    params = []
    for key, value in model.named_parameters():
        if not value.requires_grad:
            continue
        lr, wd = args.lr, 5e-4
        if "bias" in key:
            lr = args.lr * 2
        params += [{"params": [value], "lr": lr, "weight_decay": wd}]
    optimizer = torch.optim.Adam(params)
    optimizer_center = torch.optim.SGD(center_criterion.parameters(), lr=0.5)
    return optimizer, optimizer_center


class WarmupMultiStepLR(torch.optim.lr_scheduler._LRScheduler):
    def __init__(self, optimizer, milestones, gamma=0.1, factor=0.01, iters=10, last_epoch=-1):
        self.milestones, self.gamma, self.factor, self.iters = milestones, gamma, factor, iters
        super(WarmupMultiStepLR, self).__init__(optimizer, last_epoch)

    def get_lr(self):
        w = 1
        if self.last_epoch < self.iters:
            alpha = self.last_epoch / self.iters
            w = self.factor * (1 - alpha) + alpha
        return [lr * w * self.gamma ** bisect_right(self.milestones, self.last_epoch) for lr in self.base_lrs]


def extract(model, loader, device):
    model.eval()
    feats, pids, cams = [], [], []
    for img, pid, cam in loader:
        inv = torch.arange(img.size(3) - 1, -1, -1).long()
        f = torch.zeros(img.size(0), model.feat_dim)
        for k in range(2):
            if k == 1:
                img = img.index_select(3, inv)
            f = f + model(img.to(device)).detach().cpu()
        feats.append(f / f.norm(p=2, dim=1, keepdim=True))
        pids.extend(pid.tolist())
        cams.extend(cam.tolist())
    return torch.cat(feats, 0), np.asarray(pids), np.asarray(cams)


def main():
    os.environ['CUDA_VISIBLE_DEVICES'] = args.gpu
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    use_gpu = torch.cuda.is_available()
    device = torch.device('cuda' if use_gpu else 'cpu')
    cudnn.benchmark = True
    logger = setup_logger("reid_baseline", args.output)
    logger.info(args)

    imgs, pids, cams = make_pedestrians(args.num_ids, args.per_id, args.height, args.width, seed=args.seed)
    t_imgs, t_pids, t_cams = make_pedestrians(args.num_ids // 2, 6, args.height, args.width, seed=args.seed + 99)
    train_loader = DataLoader(ReidImages(imgs, pids, cams, True), batch_size=args.batch_size,
                              sampler=RandomIdentitySampler(pids, args.batch_size, args.num_instances),
                              num_workers=args.workers, drop_last=True)
    test_loader = DataLoader(ReidImages(t_imgs, t_pids, t_cams, False), batch_size=128, num_workers=args.workers)

    model = Baseline(args.num_ids, args.base, [int(d) for d in args.depth.split(',')]).to(device)
    logger.info('params: %.2fM' % (sum(p.numel() for p in model.parameters()) / 1e6))
    xent = CrossEntropyLabelSmooth(args.num_ids, use_gpu=use_gpu)
    triplet = TripletLoss(0.3)
    center = CenterLoss(args.num_ids, model.feat_dim).to(device)
    optimizer, optimizer_center = make_optimizer(model, center)
    scheduler = WarmupMultiStepLR(optimizer, [40, 70])

    for epoch in range(1, args.epochs + 1):
        model.train()
        loss_m, acc_m, ap_m, an_m, bt = [AverageMeter() for _ in range(5)]
        end = time.time()
        for it, (img, target, _) in enumerate(train_loader):
            optimizer.zero_grad()
            optimizer_center.zero_grad()
            img = img.to(device)
            target = target.to(device)
            score, feat = model(img)
            l_tri, d_ap, d_an = triplet(feat, target)
            loss = xent(score, target) + l_tri + args.center_weight * center(feat, target)
            loss.backward()
            optimizer.step()
            for param in center.parameters():
                param.grad.data *= (1. / args.center_weight)
            optimizer_center.step()

            acc = (score.max(1)[1] == target).float().mean()
            n = img.size(0)
            loss_m.update(loss.item(), n)
            acc_m.update(acc.item(), n)
            ap_m.update(d_ap.mean().item(), n)
            an_m.update(d_an.mean().item(), n)
            bt.update(time.time() - end)
            end = time.time()
            if (it + 1) % args.log_period == 0:
                logger.info("Epoch[{}] Iteration[{}/{}] Loss: {:.3f}, Acc: {:.3f}, ap {:.3f} an {:.3f}, Lr: {:.2e}".format(
                    epoch, it + 1, len(train_loader), loss_m.avg, acc_m.avg, ap_m.avg, an_m.avg,
                    scheduler.get_last_lr()[0]))
        scheduler.step()
        logger.info("Epoch %d done. loss %.4f, %.3f s/batch" % (epoch, loss_m.avg, bt.avg))

        if epoch % args.eval_period == 0 or epoch == args.epochs:
            feats, p, c = extract(model, test_loader, device)
            q = np.arange(len(p)) % 6 == 0
            qi, gi = torch.from_numpy(np.where(q)[0]), torch.from_numpy(np.where(~q)[0])
            dist = euclidean_dist(feats[qi], feats[gi]).numpy()
            cmc, mAP = eval_func(dist, p[q], p[~q], c[q], c[~q])
            logger.info("mAP: {:.1%}  Rank-1: {:.1%}".format(mAP, cmc[0]))
            if args.output:
                torch.save({'model': model.state_dict(), 'optimizer': optimizer.state_dict(), 'epoch': epoch},
                           osp.join(args.output, 'model_%d.pth' % epoch))


if __name__ == '__main__':
    main()
