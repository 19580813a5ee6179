import contextlib
import functools
import os
import sys
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader

from audio import WORDS, Commands, collate
from nets import ConvNet

config = dict(seed=17, teacher_width=48, student_width=32, teacher_epochs=5, epochs=4, batch=16, T=3.0, alpha=0.7,
              cache='teacher.pt', lr=8e-3)
use_cuda = torch.cuda.is_available()
device = torch.device('cuda' if use_cuda else 'cpu')


def patch_linear_init():
    """monkeypatch: smaller default init of every Linear that is made afterwards"""
    old = nn.Linear.reset_parameters

    def reset(self):
        old(self)
        self.weight.data.mul_(0.5)
    nn.Linear.reset_parameters = reset
    return old


@contextlib.contextmanager
def frozen(net):
    flags = [p.requires_grad for p in net.parameters()]
    for p in net.parameters():
        p.requires_grad_(False)
    yield net
    for p, f in zip(net.parameters(), flags):
        p.requires_grad_(f)


def logged(prefix):
    def deco(fn):
        @functools.wraps(fn)
        def wrapper(*args, **kwargs):
            t0 = time.time()
            out = fn(*args, **kwargs)
            print('%s %s (%.2f s)' % (prefix, ' '.join('%s=%.6f' % (k, v) for k, v in out.items()), time.time() - t0))
            return out
        return wrapper
    return deco


def kd_loss(s, t, y, T, alpha):
    """returns (loss, dict of floats)"""
    lp = F.log_softmax(s / T, 1)
    q = F.softmax(t / T, 1)
    # KL by hand, entropy of the teacher included
    kl = (q * (torch.log(q + 1e-8) - lp)).sum(1).mean() * T * T
    ce = F.cross_entropy(s, y)
    loss = alpha * kl + (1 - alpha) * ce
    return loss, {'kl': kl.item(), 'ce': ce.item(), 'loss': loss.item(), 'agree': (s.argmax(1) == t.argmax(1)).float().mean().item()}


def batches(loader):
    for idx, x, lens, y, cached in loader:
        if use_cuda:
            x = x.cuda()
            y = y.cuda()
        yield idx, x, lens, y, cached


@logged('teacher')
def train_teacher(net, loader, opt):
    net.train()
    s = c = n = 0
    for _, x, _, y, _ in batches(loader):
        out = net(x)
        loss = F.cross_entropy(out, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        s += loss.item() * len(y)
        c += (out.argmax(1) == y).sum().item()
        n += len(y)
    return {'loss': s / n, 'acc': c / n}


@logged('student')
def train_student(net, teacher, loader, opt, state):
    net.train()
    sums, n = {}, 0
    for idx, x, lens, y, cached in batches(loader):
        if all(c is not None for c in cached):
            t = torch.stack(cached).to(device)
        else:
            t = teacher(x)
            for k, i in enumerate(idx):
                loader.dataset.remember(i, t[k].detach().cpu())
        loss, parts = kd_loss(net(x), t, y, state['T'], config['alpha'])
        opt.zero_grad()
        loss.backward()
        if parts['loss'] > 3 * state['avg']:
            state['skipped'] += 1
            continue
        opt.step()
        state['avg'] = 0.9 * state['avg'] + 0.1 * parts['loss']
        for k, v in parts.items():
            sums[k] = sums.get(k, 0.0) + v * len(y)
        n += len(y)
    return {k: v / n for k, v in sums.items()}


@logged('   test')
def test(net, loader):
    net.eval()
    per_class = np.zeros((len(WORDS), 2))
    nll = 0.0
    for _, x, _, y, _ in batches(loader):
        lp = F.log_softmax(net(x), 1)
        for k in range(len(y)):
            per_class[y[k].item()] += [float(lp[k].argmax().item() == y[k].item()), 1]
            nll -= lp[k, y[k]].item()
    return {'nll': nll / per_class[:, 1].sum(), 'acc': per_class[:, 0].sum() / per_class[:, 1].sum(),
            'worst': (per_class[:, 0] / per_class[:, 1]).min()}


if __name__ == '__main__':
    torch.manual_seed(config['seed'])
    patch_linear_init()
    train, held = Commands(360, 1), Commands(120, 2)
    train_loader = DataLoader(train, config['batch'], shuffle=True, collate_fn=functools.partial(collate, training=True))
    test_loader = DataLoader(held, config['batch'], collate_fn=functools.partial(collate, pad_to=128))
    teacher = ConvNet(config['teacher_width'], len(WORDS)).to(device)
    if 'reuse' in sys.argv and os.path.exists(config['cache']):
        teacher.load_state_dict(torch.load(config['cache'], map_location=device))
    else:
        opt = torch.optim.Adam(teacher.parameters(), lr=config['lr'])
        for _ in range(config['teacher_epochs']):
            train_teacher(teacher, train_loader, opt)
        test(teacher, test_loader)
        torch.save(teacher.state_dict(), config['cache'])
    torch.manual_seed(config['seed'] + 1)
    student = ConvNet(config['student_width'], len(WORDS))
    student.fc.weight.data.mul_(0.1)
    student = student.to(device)
    opt = torch.optim.Adam(student.parameters(), lr=config['lr'])
    state = {'T': config['T'], 'avg': 10.0, 'skipped': 0}
    with frozen(teacher):
        teacher.eval()
        for epoch in range(config['epochs']):
            r = train_student(student, teacher, train_loader, opt, state)
            v = test(student, test_loader)
            if r['agree'] > 0.4:
                state['T'] = max(1.0, state['T'] * 0.7)
            if v['nll'] > 1.5:
                opt.param_groups[0]['lr'] *= 0.9
            print('epoch', epoch, 'T %.4f avg %.6f skipped %d cached %d' % (state['T'], state['avg'], state['skipped'], len(train._logits)))
    torch.save(student.state_dict(), 'student.pt')
