#!/usr/bin/env python3
# binary tree-LSTM, one tree at a time (dynamic graph, as in the early PyTorch days)
import random
import sys
import time
import functools

import torch
import torch.nn as nn
import torch.nn.functional as F

from trees import VOCAB, corpus

CONF = {'dim': 32, 'lr': 0.02, 'epochs': 3, 'window': 7, 'n_train': 110, 'n_dev': 40, 'seed': 4, 'l2': 1e-4}
device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')


def timed(fn):
    @functools.wraps(fn)
    def inner(*args, **kwargs):
        if device.type == 'cuda':
            torch.cuda.synchronize()
        t = time.time()
        r = fn(*args, **kwargs)
        if device.type == 'cuda':
            torch.cuda.synchronize()
        print('  [%s took %.2f s]' % (fn.__name__, time.time() - t))
        return r
    return inner


class TreeLSTM(nn.Module):
    def __init__(self, dim):
        super(TreeLSTM, self).__init__()
        self.dim = dim
        self.emb = nn.Embedding(len(VOCAB), dim)
        self.leaf = nn.Linear(dim, 3 * dim)
        self.comp = nn.Linear(3 * dim, 5 * dim)
        self.out = nn.Linear(dim, 3)
        self.visited = 0

    def init_weights(self, module=None, gain=1.0):
        """recursion over the children, gain shrinks with depth"""
        module = module if module is not None else self
        for child in module.children():
            self.init_weights(child, gain * 0.9)
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight.data, gain)
            module.bias.data.zero_()

    def node(self, n, losses):
        """returns (h, c); calls itself for the children and appends the loss of each node"""
        self.visited += 1
        w = self.emb(torch.LongTensor([VOCAB[n.word]]).to(device))
        if n.left is None:
            i, o, u = self.leaf(w).chunk(3, 1)
            c = torch.sigmoid(i) * torch.tanh(u)
        else:
            hl, cl = self.node(n.left, losses)
            hr, cr = self.node(n.right, losses)
            i, o, fl, fr, u = self.comp(torch.cat([w, hl, hr], 1)).chunk(5, 1)
            c = torch.sigmoid(i) * torch.tanh(u) + torch.sigmoid(fl + 1) * cl + torch.sigmoid(fr + 1) * cr
        h = torch.sigmoid(o) * torch.tanh(c)
        if losses is not None:
            logits = self.out(h)
            losses.append(F.cross_entropy(logits, torch.LongTensor([n.label]).to(device)))
        return h, c

    def forward(self, tree, losses=None):
        h, _ = self.node(tree, losses)
        return self.out(h)


def depth(n):
    return 0 if n.left is None else 1 + max(depth(n.left), depth(n.right))


@timed
def train_epoch(model, opt, trees, weights, rng):
    """trees are drawn with probability ~ their last loss"""
    model.train()
    order = rng.choices(range(len(trees)), weights=weights, k=len(trees))
    total, nodes, correct = 0.0, 0, 0
    opt.zero_grad()
    pending = 0
    for step, i in enumerate(order):
        losses = []
        logits = model(trees[i], losses)
        loss = sum(losses) / len(losses)
        l2 = 0.0
        for p in model.parameters():
            l2 = l2 + p.pow(2).sum()
        (loss + CONF['l2'] * l2).backward()
        pending += 1
        weights[i] = 0.2 + loss.item()
        total += loss.item() * len(losses)
        nodes += len(losses)
        correct += int(logits.argmax(1).item() == trees[i].label)
        if pending == CONF['window'] or step == len(order) - 1:
            for p in model.parameters():
                if p.grad is not None:
                    p.grad.data.div_(pending)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 2.0)
            opt.step()
            opt.zero_grad()
            pending = 0
    return total / nodes, correct / len(order)


@timed
def evaluate(model, trees):
    model.eval()
    by_depth = {}
    loss_sum = 0.0
    for t in trees:
        logits = model(t)
        loss_sum += F.cross_entropy(logits, torch.LongTensor([t.label]).to(device)).item()
        pred = logits.max(1)[1].cpu().numpy()[0]
        ok, n = by_depth.get(depth(t), (0, 0))
        by_depth[depth(t)] = (ok + int(pred == t.label), n + 1)
    acc = sum(a for a, _ in by_depth.values()) / len(trees)
    return loss_sum / len(trees), acc, {d: '%d/%d' % v for d, v in sorted(by_depth.items())}


def main(argv):
    for a in argv:
        k, _, v = a.lstrip('-').partition('=')
        CONF[k] = type(CONF[k])(v)
    rng = random.Random(CONF['seed'])
    torch.manual_seed(CONF['seed'])
    train, dev = corpus(CONF['n_train'], 10), corpus(CONF['n_dev'], 11)
    model = TreeLSTM(CONF['dim'])
    model.init_weights()
    model.to(device)
    opt = torch.optim.Adagrad(model.parameters(), lr=CONF['lr'])
    weights = [1.0] * len(train)
    last = None
    for epoch in range(CONF['epochs']):
        loss, acc = train_epoch(model, opt, train, weights, rng)
        dl, da, table = evaluate(model, dev)
        if last is not None and dl > last:
            opt.param_groups[0]['lr'] *= 0.6
        last = dl
        print('epoch %d loss %.6f acc %.4f dev %.6f %.4f lr %.5f nodes %d %s' % (
            epoch, loss, acc, dl, da, opt.param_groups[0]['lr'], model.visited, table))
    print('hardest', sorted(range(len(train)), key=lambda i: -weights[i])[:5], 'w %.6f' % max(weights))


if __name__ == '__main__':
    main(sys.argv[1:])
