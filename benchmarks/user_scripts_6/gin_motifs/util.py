import random

import numpy as np
import torch


class S2VGraph(object):
    def __init__(self, n, edges, label):
        '''
            n: number of nodes
            edges: list of undirected pairs
            label: an integer graph label
            node_features: one-hot of the (clipped) degree
            edge_mat: a 2 x 2E LongTensor
            neighbors: list of neighbors (without self-loop)
        '''
        self.n = n
        self.label = label
        self.neighbors = [[] for _ in range(n)]
        for i, j in edges:
            self.neighbors[i].append(j)
            self.neighbors[j].append(i)
        both = [list(e) for e in edges] + [[j, i] for i, j in edges]
        self.edge_mat = torch.LongTensor(both).transpose(0, 1)
        self.node_features = 0
        self.max_neighbor = max(len(x) for x in self.neighbors)


def make_graph(rng, label):
    """random tree plus class dependent motifs: 0 triangles, 1 squares, 2 stars"""
    n = rng.randint(10, 20)
    edges = set()
    for v in range(1, n):
        edges.add((rng.randint(max(0, v - 4), v - 1), v))
    for _ in range(rng.randint(2, 3)):
        if label == 0:
            a, b, c = rng.sample(range(n), 3)
            new = [(a, b), (b, c), (a, c)]
        elif label == 1:
            a, b, c, d = rng.sample(range(n), 4)
            new = [(a, b), (b, c), (c, d), (a, d)]
        else:
            hub, rest = rng.randrange(n), rng.sample(range(n), 4)
            new = [(hub, r) for r in rest if r != hub]
        edges.update((min(e), max(e)) for e in new)
    return n, sorted(edges)


def load_data(num, seed, max_degree=7):
    rng = random.Random(seed)
    g_list = []
    for k in range(num):
        n, edges = make_graph(rng, k % 3)
        g_list.append(S2VGraph(n, edges, k % 3))
    for g in g_list:
        g.node_features = torch.zeros(g.n, max_degree + 1)
        for v in range(g.n):
            g.node_features[v, min(len(g.neighbors[v]), max_degree)] = 1
    rng.shuffle(g_list)
    return g_list, 3


def separate_data(graph_list, fold_idx, nfold=5):
    order = np.arange(len(graph_list))
    test = order[order % nfold == fold_idx]
    train = order[order % nfold != fold_idx]
    return [graph_list[i] for i in train], [graph_list[i] for i in test]
