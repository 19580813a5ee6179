#!/usr/bin/env python3
# Who will write a paper with whom? GraphSAGE on sampled neighbourhoods, MRR against 100 candidates.
import argparse
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from graph import adjacency_lists, make_coauthor_graph, time_split
from sampling import fixed_candidates, negative_edges, sample_blocks

torch.autograd.set_detect_anomaly(True)


class Sage(nn.Module):
    def __init__(self, n_nodes, dim, emb, hidden, layers):
        super().__init__()
        self.emb = nn.Embedding(n_nodes, emb, sparse=True)
        nn.init.normal_(self.emb.weight, std=0.1)
        dims = [dim + emb] + [hidden] * layers
        self.own = nn.ModuleList([nn.Linear(a, b) for a, b in zip(dims, dims[1:])])
        self.nbr = nn.ModuleList([nn.Linear(a, b, bias=False) for a, b in zip(dims, dims[1:])])
        self.pred = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def layer(self, k, h, n_out, edge_index):
        src, dst = edge_index
        agg = torch.zeros(n_out, h.size(1), device=h.device).index_add_(0, dst, h[src])
        deg = torch.zeros(n_out).to(h.device).index_add_(0, dst, torch.ones(len(dst)).to(h.device))
        agg = agg / deg.clamp(min=1).unsqueeze(1)
        h = self.own[k](h[:n_out]) + self.nbr[k](agg)
        if k < len(self.own) - 1:
            h = F.relu(h)
        return F.normalize(h, dim=1)

    def forward(self, ids, x, blocks):
        h = torch.cat([x, self.emb(ids)], 1)
        for k, (n_out, edge_index) in enumerate(blocks):
            h = self.layer(k, h, n_out, edge_index)
        return h

    def score(self, hu, hv):
        return torch.sigmoid(self.pred(hu * hv).squeeze(-1))


def run_epoch(model, opts, g, args, device):
    model.train()
    order = np.random.permutation(len(g['train']))
    history = []
    for s in range(0, len(order) - args.batch_size + 1, args.batch_size):
        pos = g['train'][order[s:s + args.batch_size]]
        neg = negative_edges(pos, g['n'], g['edge_set'])
        pairs = np.concatenate([pos, neg])
        banned = {}
        for u, v in pos.tolist():
            banned.setdefault(u, set()).add(v)
            banned.setdefault(v, set()).add(u)

        seeds, inverse = np.unique(pairs, return_inverse=True)
        inverse = torch.from_numpy(inverse.reshape(pairs.shape)).to(device)
        nodes, blocks = sample_blocks(seeds.tolist(), g['adj'], args.fanout, banned)
        ids = torch.tensor(nodes)
        x = torch.from_numpy(g['feats'][nodes]).to(device)
        blocks = [(n, e.to(device)) for n, e in blocks]

        h = model(ids.to(device), x, blocks)
        p = model.score(h[inverse[:, 0]], h[inverse[:, 1]])
        y = torch.cat([torch.ones(len(pos)), torch.zeros(len(neg))]).to(device)
        loss = F.binary_cross_entropy(p, y)
        for o in opts:
            o.zero_grad()
        loss.backward()
        for o in opts:
            o.step()
        history.append(loss)
    return sum(history) / len(history)


def embed_all(model, g, device):
    """full neighbourhoods, layer by layer, for every node"""
    e = torch.from_numpy(g['train'].T.copy())
    e = torch.cat([e, e.flip(0)], 1).to(device)
    x = torch.from_numpy(g['feats']).to(device)
    h = torch.cat([x, model.emb.weight], 1)
    for k in range(len(model.own)):
        h = model.layer(k, h, g['n'], e)
    return h


def auc(pos, neg):
    # ranks in double precision: with millions of pairs the sum of ranks leaves float32 behind
    s = np.concatenate([pos, neg]).astype(np.float64)
    rank = np.empty(len(s))
    rank[np.argsort(s, kind='stable')] = np.arange(1, len(s) + 1)
    n, m = len(pos), len(neg)
    return (rank[:n].sum() - n * (n + 1) / 2.0) / (float(n) * m)


def evaluate(model, g, part, cands, args, device):
    model.eval()
    rr, hits = [], 0
    all_pos, all_neg = [], []
    edges = g[part]
    for s in range(0, len(edges), args.eval_batch):
        h = embed_all(model, g, device)
        u = torch.from_numpy(edges[s:s + args.eval_batch, 0]).to(device)
        v = torch.from_numpy(edges[s:s + args.eval_batch, 1]).to(device)
        c = torch.from_numpy(cands[s:s + args.eval_batch]).to(device)
        for i in range(len(u)):
            p = model.score(h[u[i]], h[v[i]])
            q = model.score(h[u[i]], h[c[i]])
            rank = (q >= p).sum().item() + 1
            rr.append(1.0 / rank)
            hits += rank <= 10
            all_pos.append(p.item())
            all_neg.append(q[0].item())
    return np.mean(rr), hits / len(edges), auc(np.array(all_pos), np.array(all_neg))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument('--nodes', type=int, default=200000)
    ap.add_argument('--dim', type=int, default=256)
    ap.add_argument('--communities', type=int, default=120)
    ap.add_argument('--degree', type=int, default=14)
    ap.add_argument('--emb', type=int, default=64)
    ap.add_argument('--hidden', type=int, default=256)
    ap.add_argument('--fanout', type=int, nargs='+', default=[15, 10])
    ap.add_argument('--batch-size', type=int, default=1024)
    ap.add_argument('--eval-batch', type=int, default=4096)
    ap.add_argument('--candidates', type=int, default=100)
    ap.add_argument('--epochs', type=int, default=30)
    ap.add_argument('--lr', type=float, default=1e-3)
    ap.add_argument('--emb-lr', type=float, default=1e-2)
    ap.add_argument('--seed', type=int, default=17)
    args = ap.parse_args()

    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    device = 'cuda' if torch.cuda.is_available() else 'cpu'

    edges, feats = make_coauthor_graph(args.nodes, args.dim, args.communities, args.degree)
    train, val, test = time_split(edges)
    g = {'n': args.nodes, 'feats': feats, 'train': train, 'val': val, 'test': test,
         'adj': adjacency_lists(train), 'edge_set': set(map(tuple, train.tolist()))}
    cands = {k: fixed_candidates(g[k], args.nodes, args.candidates, 99) for k in ('val', 'test')}

    model = Sage(args.nodes, args.dim, args.emb, args.hidden, len(args.fanout)).to(device)
    dense = [p for n, p in model.named_parameters() if not n.startswith('emb.')]
    opts = [torch.optim.SparseAdam(list(model.emb.parameters()), lr=args.emb_lr),
            torch.optim.Adam(dense, lr=args.lr)]

    best, best_state = -1, None
    for epoch in range(args.epochs):
        loss = run_epoch(model, opts, g, args, device)
        mrr, hits, a = evaluate(model, g, 'val', cands['val'], args, device)
        print(f'{epoch:3d} loss {loss.item():.6f} val MRR {mrr:.5f} hits@10 {hits:.4f} AUC {a:.6f}')
        if mrr > best:
            best, best_state = mrr, {k: v.clone() for k, v in model.state_dict().items()}
    model.load_state_dict(best_state)
    mrr, hits, a = evaluate(model, g, 'test', cands['test'], args, device)
    print(f'test MRR {mrr:.5f} hits@10 {hits:.4f} AUC {a:.6f}')


if __name__ == '__main__':
    main()
