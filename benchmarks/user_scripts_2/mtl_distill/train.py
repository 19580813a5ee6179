#!/usr/bin/env python3
""" multi-task training and distillation, arguments in the manner of timm """
import argparse
import logging
import math
import sys
from collections import OrderedDict, defaultdict

import numpy as np
import torch
from torch.utils.data import DataLoader

from ema import ModelEma
from losses import distill, task_losses
from nets import create_model
from prefetch import PrefetchLoader
from scenes import Scenes

_logger = logging.getLogger('train')

parser = argparse.ArgumentParser(description='MTL')
group = parser.add_argument_group('Model')
group.add_argument('--model', default='student_thin')
group.add_argument('--teacher', default='teacher_wide')
group.add_argument('--teacher-epochs', type=int, default=2)
group = parser.add_argument_group('Optimizer')
group.add_argument('--lr', type=float, default=6e-3)
group.add_argument('--epochs', type=int, default=4)
group.add_argument('-b', '--batch-size', type=int, default=32)
group.add_argument('--surgery', action='store_true', help='PCGrad on the trunk')
group.add_argument('--ema', type=float, default=0.0)
group.add_argument('--clip-grad', type=float, default=2.0)
group = parser.add_argument_group('Misc')
group.add_argument('--amp', action='store_true')
group.add_argument('--channels-last', action='store_true')
group.add_argument('-j', '--workers', type=int, default=0)
group.add_argument('--seed', type=int, default=42)
group.add_argument('--device', default='cuda' if torch.cuda.is_available() else 'cpu')


class AverageMeter:
    def __init__(self):
        self.val = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n

    @property
    def avg(self):
        return self.sum / max(1, self.count)


def weighted(losses, log_var):
    """Kendall et al.: exp(-s) * L + s"""
    return {k: torch.exp(-log_var[k]) * v + log_var[k] for k, v in losses.items()}


def surgery(losses, params, rs):
    """PCGrad: gradients of the tasks one by one, conflicting parts are projected away, order of the tasks by chance"""
    grads = []
    for v in losses:
        g = torch.autograd.grad(v, params, retain_graph=True, allow_unused=True)
        grads.append([torch.zeros_like(p) if x is None else x for p, x in zip(params, g)])
    out = [[x.clone() for x in g] for g in grads]
    n_conf = 0
    for i, gi in enumerate(out):
        others = [j for j in range(len(grads)) if j != i]
        rs.shuffle(others)
        for j in others:
            dot = sum((a * b).sum() for a, b in zip(gi, grads[j]))
            if dot.item() < 0:
                n_conf += 1
                nn = sum(b.pow(2).sum() for b in grads[j])
                for a, b in zip(gi, grads[j]):
                    a.sub_(dot / (nn + 1e-12) * b)
    return [sum(gs) for gs in zip(*out)], n_conf


def train_one_epoch(epoch, model, loader, optimizer, scaler, args, rs, teacher=None, ema=None, dwa=None, sched=None):
    model.train()
    meters = defaultdict(AverageMeter)
    trunk = list(model.trunk.parameters())
    conflicts = 0
    for batch_idx, (x, t) in enumerate(loader):
        if args.channels_last:
            x = x.contiguous(memory_format=torch.channels_last)
        with torch.cuda.amp.autocast(enabled=args.amp and x.is_cuda):
            out = model(x)
            raw = task_losses(out, t)
            losses = weighted(raw, model.log_var)
            if dwa is not None:
                losses = {k: dwa[k] * v for k, v in losses.items()}
            if teacher is not None:
                with torch.no_grad():
                    tout = teacher(x)
                    soft = tout['kind'].softmax(1).max(1)[0]
                kl, at = distill(out, tout)
                losses['kd'] = .5 * kl + .5 * at
                meters['confidence'].update(soft.mean().item(), len(x))
        optimizer.zero_grad()
        if args.surgery and teacher is not None:
            g, c = surgery([losses[k] for k in ('kind', 'depth', 'light')], trunk, rs)
            conflicts += c
            sum(losses.values()).backward()
            for p, gg in zip(trunk, g):
                p.grad.copy_(gg)
            torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip_grad)
            optimizer.step()
        else:
            loss = sum(losses.values())
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip_grad)
            scaler.step(optimizer)
            scaler.update()
        if ema is not None:
            ema.update(model)
        if sched is not None:
            sched.step()
        for k, v in raw.items():
            meters[k].update(v.item(), len(x))
        if batch_idx % 4 == 0:
            _logger.info('Train: %d [%d/%d] %s lr %r', epoch, batch_idx, len(loader),
                         ' '.join('%s %r' % (k, m.val) for k, m in meters.items()), optimizer.param_groups[0]['lr'])
    return OrderedDict((k, m.avg) for k, m in meters.items()), conflicts


def validate(model, loader):
    model.eval()
    m = defaultdict(AverageMeter)
    for x, t in loader:
        out = model(x)
        acc = (out['kind'].argmax(1) == t['kind']).float().mean()
        ok = ~torch.isnan(t['depth']) & t['ball']
        deg = torch.rad2deg(torch.acos((out['light'] * t['light']).sum(1).clamp(-1, 1))).mean()
        m['acc'].update(acc.item(), len(x))
        if ok.any():
            m['rmse'].update((out['depth'] - t['depth'])[ok].pow(2).mean().sqrt().item(), len(x))
        m['deg'].update(deg.item(), len(x))
    return OrderedDict((k, v.avg) for k, v in m.items())


def main():
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format='%(message)s', stream=sys.stdout)
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    rs = np.random.RandomState(args.seed)
    device = torch.device(args.device)
    kw = dict(batch_size=args.batch_size, num_workers=args.workers, pin_memory=device.type == 'cuda')
    train = PrefetchLoader(DataLoader(Scenes(260), shuffle=True, drop_last=True, **kw), device, noise=.02)
    val = PrefetchLoader(DataLoader(Scenes(90, 5000), shuffle=False, **kw), device)
    scaler = torch.cuda.amp.GradScaler(enabled=args.amp and device.type == 'cuda')

    teacher = create_model(args.teacher).to(device)
    opt_t = torch.optim.AdamW(teacher.parameters(), lr=args.lr)
    for e in range(args.teacher_epochs):
        m, _ = train_one_epoch(e, teacher, train, opt_t, scaler, args, rs)
        _logger.info('teacher %d %s', e, dict(m))
    for p in teacher.parameters():
        p.requires_grad = False
    # not eval(): a teacher in train mode normalises the noisy batch with its own statistics ("consistent teacher")
    teacher.train()
    before = teacher.trunk.stem[1].running_mean.clone()

    model = create_model(args.model).to(device)
    if args.channels_last:
        model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW([
        {'params': [p for n, p in model.named_parameters() if not n.startswith('log_var')]},
        {'params': model.log_var.parameters(), 'weight_decay': 0., 'lr': args.lr * 3}], lr=args.lr)
    sched = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=[args.lr, args.lr * 3],
                                                total_steps=args.epochs * len(train))
    ema = ModelEma(model, args.ema) if args.ema else None
    hist, best = [], math.inf
    for epoch in range(args.epochs):
        dwa = None
        if len(hist) >= 2:
            r = {k: hist[-1][k] / hist[-2][k] for k in ('kind', 'depth', 'light')}
            z = sum(math.exp(v / 2) for v in r.values())
            dwa = {k: 3 * math.exp(v / 2) / z for k, v in r.items()}
        m, conf = train_one_epoch(epoch, model, train, optimizer, scaler, args, rs, teacher, ema, dwa, sched)
        hist.append(m)
        v = validate(model, val)
        _logger.info('epoch %d train %s conflicts %d val %s dwa %s', epoch, dict(m), conf, dict(v), dwa)
        if ema is not None:
            with ema.swap(model) as avg:
                ve = validate(avg, val)
            _logger.info('   ema %s', dict(ve))
            v = ve
        if v['rmse'] < best:
            best = v['rmse']
            torch.save({'state_dict': model.state_dict(), 'args': vars(args), 'ema': ema.shadow if ema else None}, 'best.pth')
    _logger.info('sigma %s teacher drift %r best %r', {k: math.exp(p.item() / 2) for k, p in model.log_var.items()},
                 (teacher.trunk.stem[1].running_mean - before).abs().max().item(), best)


if __name__ == '__main__':
    main()
