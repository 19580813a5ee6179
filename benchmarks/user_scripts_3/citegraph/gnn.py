"""Graph attention / GCN on a citation-like graph, written from scratch (no PyG, no DGL).

Full batch, semi-supervised node classification on a stochastic block model.
"""
import argparse
import math
import time
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

ap = argparse.ArgumentParser()
ap.add_argument("--nodes", type=int, default=1500)
ap.add_argument("--classes", type=int, default=5)
ap.add_argument("--feats", type=int, default=200)
ap.add_argument("--hidden", type=int, default=16)
ap.add_argument("--heads", type=int, default=4)
ap.add_argument("--epochs", type=int, default=120)
ap.add_argument("--patience", type=int, default=30)
ap.add_argument("--dropout", type=float, default=0.5)
ap.add_argument("--dropedge", type=float, default=0.2)
ap.add_argument("--lr", type=float, default=5e-3)
ap.add_argument("--wd", type=float, default=5e-4)
ap.add_argument("--seed", type=int, default=0)
args = ap.parse_args()

np.random.seed(args.seed)
torch.manual_seed(args.seed)
dev = "cuda" if torch.cuda.is_available() else "cpu"


def make_graph():
    n, c = args.nodes, args.classes
    y = np.random.randint(0, c, n)
    src, dst = [], []
    for i in range(n):
        deg = 1 + np.random.poisson(3)
        for _ in range(deg):
            same = np.random.rand() < 0.7
            pool = np.flatnonzero((y == y[i]) == same)
            j = np.random.choice(pool)
            if i != j:
                src += [i, j]
                dst += [j, i]
    topics = np.random.rand(c, args.feats) ** 6
    x = (np.random.rand(n, args.feats) < topics[y] * 0.12 + 0.03).astype(np.float32)
    x /= np.maximum(x.sum(1, keepdims=True), 1)
    edges = np.unique(np.stack([src, dst]), axis=1)
    return torch.from_numpy(x), torch.from_numpy(y), torch.from_numpy(edges)


def add_self_loops(edge, n):
    loop = torch.arange(n).to(edge.device)
    return torch.cat([edge, torch.stack([loop, loop])], dim=1)


def drop_edges(edge, p):
    # global CPU stream on purpose: same edges with and without a GPU
    keep = torch.rand(edge.size(1)) > p
    return edge[:, keep.to(edge.device)]


def scatter_softmax(score, index, n):
    # score: E x H; subtract the maximum of every target node
    m = torch.full((n, score.size(1)), -1e9, device=score.device)
    m = m.scatter_reduce(0, index[:, None].expand_as(score), score, "amax")
    e = (score - m[index]).exp()
    s = torch.zeros(n, score.size(1), device=score.device).index_add_(0, index, e)
    return e / (s[index] + 1e-12)


class GATLayer(nn.Module):
    def __init__(self, fin, fout, heads, concat=True):
        super().__init__()
        self.h, self.f, self.concat = heads, fout, concat
        self.W = nn.Linear(fin, heads * fout, bias=False)
        self.a_src = nn.Parameter(torch.empty(1, heads, fout))
        self.a_dst = nn.Parameter(torch.empty(1, heads, fout))
        self.bias = nn.Parameter(torch.zeros(heads * fout if concat else fout))
        for p in (self.W.weight, self.a_src, self.a_dst):
            nn.init.xavier_uniform_(p)

    def forward(self, x, edge):
        n = x.size(0)
        z = self.W(x).view(n, self.h, self.f)
        src, dst = edge
        score = F.leaky_relu((z * self.a_src).sum(-1)[src] + (z * self.a_dst).sum(-1)[dst], 0.2)
        alpha = scatter_softmax(score, dst, n)
        alpha = F.dropout(alpha, args.dropout, self.training)
        out = torch.zeros(n, self.h, self.f, device=x.device)
        out.index_add_(0, dst, z[src] * alpha.unsqueeze(-1))
        out = out.flatten(1) if self.concat else out.mean(1)
        return out + self.bias


class GCNLayer(nn.Module):
    def __init__(self, fin, fout):
        super().__init__()
        self.lin = nn.Linear(fin, fout)

    def forward(self, x, edge):
        n = x.size(0)
        src, dst = edge
        deg = torch.zeros(n).to(x.device)
        deg.index_add_(0, dst, torch.ones(dst.size(0)).to(x.device))
        norm = deg.pow(-0.5)
        w = norm[src] * norm[dst]
        h = self.lin(x)
        return torch.zeros(n, h.size(1)).to(x.device).index_add_(0, dst, h[src] * w[:, None])


class Net(nn.Module):
    def __init__(self, fin, hid, heads, c):
        super().__init__()
        self.l1 = GATLayer(fin, hid, heads)
        self.l2 = GCNLayer(hid * heads, hid)
        self.l3 = GATLayer(hid, c, 1, concat=False)

    def forward(self, x, edge):
        x = F.dropout(x, args.dropout, self.training)
        x = F.elu(self.l1(x, edge))
        x = F.dropout(x, args.dropout, self.training)
        x = F.elu(self.l2(x, edge))
        return self.l3(x, edge)


def accuracy(logits, y, mask):
    return (logits[mask].argmax(1) == y[mask]).float().mean().item()


def label_prop(y, mask, edge, n, c, iters=20):
    """Baseline printed for the paper's table."""
    p = torch.zeros(n, c, device=y.device)
    p[mask, y[mask]] = 1
    seed = p.clone()
    for _ in range(iters):
        p = torch.zeros_like(p).index_add_(0, edge[1], p[edge[0]])
        p = p / p.sum(1, keepdim=True).clamp(min=1e-9)
        p[mask] = seed[mask]
    return p


def main():
    x, y, edge = make_graph()
    n = x.size(0)
    perm = torch.randperm(n)
    train_mask = torch.zeros(n, dtype=torch.bool)
    val_mask = torch.zeros(n, dtype=torch.bool)
    train_mask[perm[:100]] = True
    val_mask[perm[100:500]] = True
    test_mask = ~(train_mask | val_mask)
    x, y, edge = x.to(dev), y.to(dev), edge.to(dev)
    train_mask, val_mask, test_mask = train_mask.to(dev), val_mask.to(dev), test_mask.to(dev)
    full = add_self_loops(edge, n)
    print(f"{n} nodes, {edge.size(1)} edges; label propagation "
          f"{accuracy(label_prop(y, train_mask, edge, n, args.classes), y, test_mask):.4f}")

    net = Net(args.feats, args.hidden, args.heads, args.classes).to(dev)
    opt = torch.optim.Adam(net.parameters(), lr=args.lr, weight_decay=args.wd)
    best_val, best_test, best_epoch, state = 1e9, 0, 0, None
    dur = deque(maxlen=20)
    for ep in range(args.epochs):
        if dev == "cuda":
            torch.cuda.synchronize()
        t0 = time.perf_counter()
        net.train()
        opt.zero_grad()
        out = net(x, add_self_loops(drop_edges(edge, args.dropedge), n))
        loss = F.cross_entropy(out[train_mask], y[train_mask])
        loss.backward()
        opt.step()

        net.eval()
        out = net(x, full)
        val_loss = F.cross_entropy(out[val_mask], y[val_mask]).item()
        va, te = accuracy(out, y, val_mask), accuracy(out, y, test_mask)
        dur.append(time.perf_counter() - t0)
        if val_loss < best_val:
            best_val, best_test, best_epoch = val_loss, te, ep
            state = {k: v.clone() for k, v in net.state_dict().items()}
        elif ep - best_epoch > args.patience:
            print("early stop at", ep)
            break
        if ep % 10 == 0:
            print(f"{ep:4d} loss {loss.item():.4f} val {val_loss:.4f} acc {va:.4f}/{te:.4f}")
    net.load_state_dict(state)
    print(f"best epoch {best_epoch}: val {best_val:.4f} test {best_test:.4f}")


if __name__ == "__main__":
    main()
