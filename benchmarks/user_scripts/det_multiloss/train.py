#!/usr/bin/env python
import math
import random
import time
from collections import OrderedDict

import numpy as np
import torch
import torch.nn as nn
from torch.cuda.amp import GradScaler

from data import Collater, get_loader
from detector import STRIDE, Detector, iou_ltrb, locations, losses

cfg = dict(seed=9, epochs=3, batch=12, lr=0.004, gradnorm_alpha=0.5, fp16=False, clip=5.0, n_train=132, n_val=36)

device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
random.seed(cfg['seed'])
np.random.seed(cfg['seed'])
torch.manual_seed(cfg['seed'])
torch.backends.cudnn.deterministic = True


class GradNorm(nn.Module):
    """loss weights such that the gradient norms at the shared layer are alike (second order)"""

    def __init__(self, names, alpha, lr=0.02):
        super().__init__()
        self.names, self.alpha = names, alpha
        self.w = nn.Parameter(torch.ones(len(names)))
        self.first = None
        self.lr = lr

    def step(self, ls, shared):
        vals = torch.stack([ls[n] for n in self.names])
        if self.first is None:
            self.first = vals.detach().clamp(min=1e-3)
        norms = []
        for i, n in enumerate(self.names):
            g = torch.autograd.grad(self.w[i] * ls[n], shared, retain_graph=True, create_graph=True)[0]
            norms.append(g.norm())
        norms = torch.stack(norms)
        rate = vals.detach() / self.first
        rate = rate / rate.mean()
        goal = (norms.mean() * rate ** self.alpha).detach()
        gw = torch.autograd.grad((norms - goal).abs().sum(), self.w, retain_graph=True)[0]
        with torch.no_grad():
            self.w -= self.lr * gw
            self.w.clamp_(min=0.1)
            self.w *= len(self.names) / self.w.sum()
        return norms.detach()


def move_targets(ts, device):
    return [{k: v.to(device) if torch.is_tensor(v) else v for k, v in t.items()} for t in ts]


def log_grads(store, name):
    def hook(g):
        store[name] = g.abs().max().item()
        return g
    return hook


def train_one_epoch(model, balance, opt, scaler, loader, epoch, store, **kw):
    model.train()
    meters = OrderedDict((n, 0.0) for n in balance.names)
    bad, hard = 0, []
    for i, (imgs, targets) in enumerate(loader):
        imgs = imgs.to(device)
        targets = move_targets(targets, device)
        with torch.autocast(device.type, dtype=torch.float16, enabled=cfg['fp16'] and device.type == 'cuda'):
            out = model(imgs, targets, **kw)
        out['feat'].register_hook(log_grads(store, 'feat'))
        ls = losses(out, targets)
        norms = balance.step(ls, model.stage[1][0].weight)
        w = balance.w.detach()
        loss = sum(w[k] * ls[n] for k, n in enumerate(balance.names))
        loss_value = loss.item()
        if not math.isfinite(loss_value):
            print('Loss is %s, stopping training' % loss_value)
            raise SystemExit(1)
        opt.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        nn.utils.clip_grad_norm_(model.parameters(), cfg['clip'])
        if store['feat'] > 50:
            bad += 1
        scaler.step(opt)
        scaler.update()
        for n in balance.names:
            meters[n] += ls[n].item()
        if loss_value > 2.5:
            hard += [t['id'] for t in targets]
        if i % 5 == 0:
            print('[%d] %3d/%d size %d  %s  w %s  gn %s  gmax %.5f' % (
                epoch, i, len(loader), imgs.size(-1), '  '.join('%s %.5f' % (n, meters[n] / (i + 1)) for n in meters),
                ['%.4f' % v for v in balance.w.tolist()], ['%.4f' % v for v in norms.cpu().numpy()], store['feat']))
        torch.cuda.empty_cache()
    return {n: v / len(loader) for n, v in meters.items()}, bad, hard


def nms(boxes, scores, thr=0.5):
    keep = []
    order = scores.argsort(descending=True)
    while order.numel() > 0:
        k = order[0].item()
        keep.append(k)
        rest = order[1:]
        lt = torch.max(boxes[k, :2], boxes[rest, :2])
        rb = torch.min(boxes[k, 2:], boxes[rest, 2:])
        inter = (rb - lt).clamp(min=0).prod(1)
        area = (boxes[:, 2:] - boxes[:, :2]).prod(1)
        order = rest[inter / (area[k] + area[rest] - inter) < thr]
    return keep


def evaluate(model, loader):
    model.eval()
    tp = fp = gt = 0
    val = 0.0
    for imgs, targets in loader:
        imgs, targets = imgs.to(device), move_targets(targets, device)
        out = model(imgs)
        val += sum(losses(out, targets).values()).item()
        loc = locations(out['obj'].size(1), out['obj'].size(2), device)
        for n, t in enumerate(targets):
            s = torch.sigmoid(out['obj'][n]).flatten()
            d = out['ltrb'][n].flatten(1).t()
            xy = loc.reshape(-1, 2)
            bx = torch.cat([xy - d[:, :2], xy + d[:, 2:]], 1)
            sel = s > 0.3
            bx, s, c = bx[sel], s[sel], out['cls'][n].argmax(0).flatten()[sel]
            used = set()
            for k in nms(bx, s):
                hit = None
                for j in range(len(t['boxes'])):
                    g = t['boxes'][j]
                    inter = (torch.min(bx[k, 2:], g[2:]) - torch.max(bx[k, :2], g[:2])).clamp(min=0).prod()
                    u = (bx[k, 2:] - bx[k, :2]).prod() + (g[2:] - g[:2]).prod() - inter
                    if j not in used and (inter / u).item() > 0.4 and c[k].item() == t['labels'][j].item():
                        hit = j
                if hit is None:
                    fp += 1
                else:
                    used.add(hit)
                    tp += 1
            gt += len(t['boxes'])
    return val / len(loader), tp / max(1, tp + fp), tp / max(1, gt)


def main():
    train_loader = get_loader(cfg['n_train'], 1, cfg['batch'], shuffle=True, collate_fn=Collater((1.0, 1.0, 1.5, 0.67), seed=3))
    val_loader = get_loader(cfg['n_val'], 2, cfg['batch'], collate_fn=Collater())
    model = Detector()
    model.to(device)
    balance = GradNorm(['obj', 'cls', 'box'], cfg['gradnorm_alpha']).to(device)
    opt = torch.optim.Adam(model.parameters(), lr=cfg['lr'])
    scaler = GradScaler(enabled=cfg['fp16'] and device.type == 'cuda')
    store, best = {}, -1
    for epoch in range(cfg['epochs']):
        t0 = time.time()
        m, bad, hard = train_one_epoch(model, balance, opt, scaler, train_loader, epoch, store, step=epoch)
        v, prec, rec = evaluate(model, val_loader)
        if len(hard) > 60 and epoch > 0:
            for g in opt.param_groups:
                g['lr'] *= 0.5
        print('epoch %d %s val %.6f prec %.5f rec %.5f hard %d bad %d lr %.5f (%.1fs)' % (
            epoch, {k: round(x, 6) for k, x in m.items()}, v, prec, rec, len(hard), bad, opt.param_groups[0]['lr'], time.time() - t0))
        if prec * rec > best:
            best = prec * rec
            torch.save({'model': model.state_dict(), 'w': balance.w.data, 'scaler': scaler.state_dict()}, 'det.pth')
    print('weights', ['%.6f' % x for x in balance.w.tolist()])


if __name__ == '__main__':
    main()
