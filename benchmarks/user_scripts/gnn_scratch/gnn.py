import argparse
import math
import time
from collections import defaultdict

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class ScatterMean(torch.autograd.Function):
    """out[d] = mean of src over edges that end in d"""

    @staticmethod
    def forward(ctx, src, dst, n):
        deg = torch.zeros(n, device=src.device).index_add_(0, dst, torch.ones(dst.size(0)).to(src.device)).clamp_(min=1)
        out = torch.zeros(n, src.size(1), device=src.device).index_add_(0, dst, src)
        ctx.save_for_backward(dst, deg)
        return out / deg.unsqueeze(1)

    @staticmethod
    def backward(ctx, g):
        dst, deg = ctx.saved_tensors
        return (g / deg.unsqueeze(1))[dst], None, None


def edge_softmax(e, dst, n):
    # max per target, by hand
    m = torch.full((n, e.size(1)), float('-inf')).to(e.device)
    m = m.scatter_reduce(0, dst.unsqueeze(1).expand_as(e), e, 'amax')
    ex = torch.exp(e - m[dst])
    z = torch.zeros(n, e.size(1)).to(e.device).index_add(0, dst, ex)
    return ex / (z[dst] + 1e-16)


class GATLayer(nn.Module):
    def __init__(self, i, o, heads):
        super().__init__()
        self.h, self.o = heads, o
        self.w = nn.Linear(i, o * heads, bias=False)
        self.a_src = nn.Parameter(torch.empty(heads, o))
        self.a_dst = nn.Parameter(torch.empty(heads, o))
        nn.init.xavier_normal_(self.a_src)
        nn.init.xavier_normal_(self.a_dst)

    def forward(self, x, src, dst):
        n = x.size(0)
        z = self.w(x).view(n, self.h, self.o)
        e = (z * self.a_src).sum(-1)[src] + (z * self.a_dst).sum(-1)[dst]
        al = edge_softmax(F.leaky_relu(e, 0.2), dst, n)
        out = torch.zeros(n, self.h, self.o).to(x.device)
        out.index_add_(0, dst, al.unsqueeze(-1) * z[src])
        return out.flatten(1)


class Net(nn.Module):
    def __init__(self, f, hid, heads, classes):
        super().__init__()
        self.g1 = GATLayer(f, hid, heads)
        self.g2 = nn.Linear(2 * hid * heads, hid)
        self.node = nn.Linear(hid, classes)
        self.graph = nn.Linear(hid, 1)

    def forward(self, b):
        h = F.elu(self.g1(b.x, b.src, b.dst))
        nb = ScatterMean.apply(h[b.src], b.dst, h.size(0))
        h = F.elu(self.g2(torch.cat([h, nb], 1)))
        pooled = ScatterMean.apply(h, b.graph_id, b.n_graphs)
        return self.node(h), self.graph(pooled).squeeze(1)


class Graph:
    def __init__(self, x, src, dst, y, t):
        self.x, self.src, self.dst, self.y, self.t = x, src, dst, y, t


class Batch:
    """many graphs glued together; behaves like a dict of tensors through __getattr__"""

    def __init__(self, **tensors):
        self.__dict__['_t'] = tensors

    def __getattr__(self, k):
        try:
            return self.__dict__['_t'][k]
        except KeyError:
            raise AttributeError(k) from None

    def to(self, *args, **kw):
        return Batch(**{k: v.to(*args, **kw) if torch.is_tensor(v) else v for k, v in self._t.items()})

    @classmethod
    def collate(cls, graphs):
        off, xs, s, d, ys, gid = 0, [], [], [], [], []
        for k, g in enumerate(graphs):
            xs.append(g.x)
            s.append(g.src + off)
            d.append(g.dst + off)
            ys.append(g.y)
            gid += [k] * g.x.size(0)
            off += g.x.size(0)
        return cls(x=torch.cat(xs), src=torch.cat(s), dst=torch.cat(d), y=torch.cat(ys), graph_id=torch.tensor(gid),
                   t=torch.tensor([g.t for g in graphs], dtype=torch.float32), n_graphs=len(graphs))


def random_graph(r):
    n = r.randint(8, 20)
    comm = r.randint(0, 3, n)
    p = np.where(comm[:, None] == comm[None], 0.5, 0.08)
    a = np.triu(r.rand(n, n) < p, 1)
    a = a | a.T | np.eye(n, dtype=bool)
    src, dst = np.nonzero(a)
    x = np.eye(3)[comm] * 0.6 + r.randn(n, 3)
    return Graph(torch.tensor(x, dtype=torch.float32), torch.from_numpy(src), torch.from_numpy(dst),
                 torch.from_numpy(comm), float(np.log(a.sum() / n)))


def loader(graphs, size, shuffle, seed=0):
    """generator; yields (batch, indices). Order depends on seed only"""
    order = np.random.RandomState(seed).permutation(len(graphs)) if shuffle else np.arange(len(graphs))
    for i in range(0, len(order), size):
        idx = order[i:i + size]
        yield Batch.collate([graphs[j] for j in idx]), idx


def confusion(pred, y, n):
    m = torch.zeros(n, n, dtype=torch.long)
    for a, b in zip(pred.cpu().tolist(), y.cpu().tolist()):
        m[b, a] += 1
    return m


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument('--epochs', type=int, default=5)
    ap.add_argument('--bs', type=int, default=16)
    ap.add_argument('--hid', type=int, default=24)
    ap.add_argument('--heads', type=int, default=4)
    ap.add_argument('--lr', type=float, default=0.008)
    ap.add_argument('--cpu', action='store_true')
    args = ap.parse_args()
    device = 'cuda' if torch.cuda.is_available() and not args.cpu else 'cpu'
    torch.manual_seed(5)
    r = np.random.RandomState(5)
    train, valid = [random_graph(r) for _ in range(220)], [random_graph(r) for _ in range(60)]
    cw = torch.from_numpy(np.bincount(np.concatenate([g.y.numpy() for g in train]), minlength=3)).float()
    cw = cw.sum() / (3 * cw)

    model = Net(3, args.hid, args.heads, 3).to(device)
    opt = torch.optim.RMSprop(model.parameters(), lr=args.lr)
    log_var = torch.zeros(2, requires_grad=True, device=device)      # uncertainty weights
    opt.add_param_group({'params': [log_var], 'lr': 0.02})
    skip = defaultdict(int)
    ema, best, best_state = None, 1e9, None
    for epoch in range(args.epochs):
        t0 = time.time()
        model.train()
        tot = np.zeros(2)
        for b, idx in loader(train, args.bs, True, seed=epoch):
            # graphs that were fitted well sit out a few rounds
            if any(skip[int(i)] > 0 for i in idx):
                for i in idx:
                    skip[int(i)] = max(0, skip[int(i)] - 1)
                continue
            b = b.to(device)
            node, graph = model(b)
            l1 = F.cross_entropy(node, b.y, weight=cw.to(device))
            l2 = F.mse_loss(graph, b.t)
            loss = torch.exp(-log_var[0]) * l1 + torch.exp(-log_var[1]) * l2 + log_var.sum()
            opt.zero_grad()
            loss.backward()
            opt.step()
            log_var.data.clamp_(-3, 3)
            tot += np.array([l1.item(), l2.item()]) * len(idx)
            with torch.no_grad():
                per = F.cross_entropy(node, b.y, reduction='none')
                for k, i in enumerate(idx):
                    ok = per[b.graph_id == k].max().item() < 0.95
                    skip[int(i)] = 2 if ok else max(0, skip[int(i)] - 1)
            ema = loss.item() if ema is None else 0.95 * ema + 0.05 * loss.item()
        if ema != ema or math.isinf(ema):
            raise SystemExit('diverged')
        model.eval()
        cm, vl, n = torch.zeros(3, 3, dtype=torch.long), 0.0, 0
        for b, idx in loader(valid, args.bs, False):
            b = b.to(device)
            node, graph = model(b)
            cm += confusion(node.argmax(1), b.y, 3)
            vl += F.mse_loss(graph, b.t, reduction='sum').item()
            n += len(idx)
        if vl / n < best:
            best, best_state = vl / n, model.state_dict()
        acc = cm.diag().sum().item() / cm.sum().item()
        print('epoch %d ce %.6f mse %.6f ema %.6f logvar %s | acc %.5f mse %.6f | sitting out %d (%.2f s)' % (
            epoch, tot[0] / len(train), tot[1] / len(train), ema, ['%.4f' % v for v in log_var.tolist()], acc, vl / n,
            sum(v > 0 for v in skip.values()), time.time() - t0))
    model.load_state_dict(best_state)
    with torch.no_grad():
        b, _ = next(loader(valid, len(valid), False))
        print(cm.tolist(), 'best mse %.6f, now %.6f' % (best, F.mse_loss(model(b.to(device))[1], b.t.to(device)).item()))


if __name__ == '__main__':
    main()
