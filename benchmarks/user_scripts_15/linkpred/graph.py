import collections

import numpy as np


def make_coauthor_graph(n, dim, communities, mean_degree, seed=0):
    """Papers come in one after the other, authors prefer their own field and busy colleagues.
    Returns edges (E, 2) in order of time and the authors' feature vectors."""
    rng = np.random.RandomState(seed)
    field = rng.randint(0, communities, n)
    members = [np.flatnonzero(field == c) for c in range(communities)]
    busy = rng.pareto(2.0, n) + 0.2
    weight = [busy[m] / busy[m].sum() for m in members]
    m = n * mean_degree // 2
    u = rng.choice(n, m, p=busy / busy.sum())
    v = np.empty(m, dtype=np.int64)
    own = rng.rand(m) < 0.85
    for c in range(communities):
        sel = own & (field[u] == c)
        v[sel] = rng.choice(members[c], sel.sum(), p=weight[c])
    v[~own] = rng.randint(0, n, (~own).sum())
    e = np.stack([np.minimum(u, v), np.maximum(u, v)], 1)
    e = e[e[:, 0] != e[:, 1]]
    _, first = np.unique(e[:, 0] * n + e[:, 1], return_index=True)
    e = e[np.sort(first)]
    centers = rng.randn(communities, dim)
    feats = (centers[field] * 0.5 + rng.randn(n, dim)).astype(np.float32)
    return e, feats


def adjacency_lists(edges):
    adj = collections.defaultdict(list)
    for a, b in edges.tolist():
        adj[a].append(b)
        adj[b].append(a)
    return adj


def time_split(edges, val=0.05, test=0.05):
    """the future must not leak into the past: no shuffling here"""
    n = len(edges)
    a, b = int(n * (1 - val - test)), int(n * (1 - test))
    return edges[:a], edges[a:b], edges[b:]
