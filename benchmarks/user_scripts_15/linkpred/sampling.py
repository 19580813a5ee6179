import random

import numpy as np
import torch


def sample_block(seeds, adj, fanout, banned):
    """One layer of messages into `seeds`.

    banned[v] are neighbours of v that must not send a message (the edges that we are
    asked to predict in this batch, otherwise the model just reads off the answer).
    Returns the nodes needed below (the seeds first) and the edges in local numbers.
    """
    local = {v: i for i, v in enumerate(seeds)}
    nodes = list(seeds)
    src, dst = [], []
    for i, v in enumerate(seeds):
        nb = adj[v]
        if v in banned:
            nb = [w for w in nb if w not in banned[v]]
        if len(nb) > fanout:
            nb = random.sample(nb, fanout)
        for w in nb:
            if w not in local:
                local[w] = len(nodes)
                nodes.append(w)
            src.append(local[w])
            dst.append(i)
    return nodes, torch.tensor([src, dst], dtype=torch.long)


def sample_blocks(seeds, adj, fanouts, banned):
    blocks = []
    for f in fanouts:                       # from the top layer down
        n_out = len(seeds)
        seeds, edge_index = sample_block(seeds, adj, f, banned)
        blocks.append((n_out, edge_index))
    return seeds, blocks[::-1]


def negative_edges(pos, n_nodes, edge_set):
    """keep the left end, draw the right end until it is not a known edge"""
    neg = []
    for u, _ in pos.tolist():
        while True:
            w = random.randrange(n_nodes)
            if w != u and (min(u, w), max(u, w)) not in edge_set:
                break
        neg.append((u, w))
    return np.array(neg)


def fixed_candidates(pos, n_nodes, k, seed):
    """the k wrong answers against which a held-out edge is ranked; the same in each run"""
    rng = np.random.RandomState(seed)
    return rng.randint(0, n_nodes, (len(pos), k))
