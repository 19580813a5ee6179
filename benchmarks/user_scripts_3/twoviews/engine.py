# -*- coding: utf-8 -*-
import math
import torch
import torch.nn as nn
import torch.nn.functional as F


class Meter:
    def __init__(self):
        self.s = self.n = 0

    def add(self, v, k=1):
        self.s += v * k
        self.n += k

    @property
    def avg(self):
        return self.s / max(1, self.n)


def adjust_lr(opt, base, step, total):
    lr = base * 0.5 * (1 + math.cos(math.pi * step / total))
    for g in opt.param_groups:
        g['lr'] = lr
    return lr


def train_epoch(model, loader, opt, ep, cfg, device, hard):
    model.train()
    losses, top1 = Meter(), Meter()
    for i, (a, b, idx) in enumerate(loader):
        lr = adjust_lr(opt, cfg.lr, ep * len(loader) + i, cfg.epochs * len(loader))
        a = a.to(device)
        b = b.to(device)
        logits, labels = model(a, b)
        each = F.cross_entropy(logits, labels, reduction='none')
        # 记录每张图的难度 (numpy 与张量共享内存)
        hard[idx] = 0.9 * hard[idx] + 0.1 * each.detach().cpu()
        loss = each.mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.add(loss.item(), a.size(0))
        top1.add((logits.argmax(1) == 0).float().mean().item() * 100, a.size(0))
        if i % 5 == 0:
            print('轮 %d [%2d/%d] 损失 %.4f top1 %.2f 学习率 %.4f' % (ep, i, len(loader), losses.avg, top1.avg, lr))
    return losses.avg


def extract(net, x, device, bs=64):
    net.eval()
    out = []
    for i in range(0, len(x), bs):
        out.append(net(x[i:i + bs].to(device)).cpu())
    return torch.cat(out)


def linear_probe(model, x, y, cfg, device):
    """线性评估: 在冻结特征上训练一个线性层 (评估里也有训练!)"""
    trunk = model.student[:-3]
    feats = extract(trunk, x, device).detach()
    feats = (feats - feats.mean(0)) / (feats.std(0) + 1e-6)
    n = int(len(x) * 0.7)
    head = nn.Linear(feats.size(1), cfg.classes).to(device)
    opt = torch.optim.LBFGS(head.parameters(), lr=0.5, max_iter=cfg.probe_epochs)
    ftr, ytr = feats[:n].to(device), y[:n].to(device)

    def closure():
        opt.zero_grad()
        l = F.cross_entropy(head(ftr), ytr) + 1e-3 * head.weight.pow(2).sum()
        l.backward()
        return l
    opt.step(closure)
    with torch.no_grad():
        pred = head(feats[n:].to(device)).argmax(1).cpu()
    return (pred == y[n:]).float().mean().item()


def knn(model, x, y, device, k=5):
    f = F.normalize(extract(model.teacher, x, device), dim=1)
    sim = f @ f.t()
    sim.fill_diagonal_(-1)
    nb = sim.topk(k, dim=1)[1]
    return (y[nb].mode(1)[0] == y).float().mean().item()
