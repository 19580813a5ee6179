# GCN on a made-up graph of papers: the whole graph is one batch, three random splits.
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

NODES, CLASSES, FEATURES, HIDDEN = 600, 4, 60, 24
LR, WEIGHT_DECAY, DROPOUT, DROP_EDGE = 0.02, 2e-3, 0.5, 0.2
MAX_EPOCHS, PATIENCE = 90, 25


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def make_graph():
    g = np.random.default_rng(0)
    y = g.integers(0, CLASSES, NODES)
    src, dst = [], []
    for i in range(NODES):
        near = np.flatnonzero(y == y[i])
        for _ in range(g.integers(1, 5)):
            j = g.choice(near) if g.random() < 0.68 else g.integers(0, NODES)
            if i != j:
                src.append(i)
                dst.append(int(j))
    topics = g.random((CLASSES, FEATURES)) * 0.08 + 0.02
    x = (g.random((NODES, FEATURES)) < topics[y]).astype(np.float32)
    x = x / np.maximum(x.sum(1, keepdims=True), 1)
    pairs = torch.tensor([src, dst]).unique(dim=1)
    return torch.tensor(x), torch.tensor(y), pairs


def normalise(pairs):
    """Both directions and loops, with the weight of each."""
    loops = torch.arange(NODES)
    src = torch.cat([pairs[0], pairs[1], loops])
    dst = torch.cat([pairs[1], pairs[0], loops])
    degree = torch.zeros(NODES).index_add_(0, dst, torch.ones(len(dst)))
    weight = degree[src].rsqrt() * degree[dst].rsqrt()
    return src, dst, weight


class GCNLayer(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias=False)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x, graph):
        src, dst, weight = graph
        h = self.linear(x)
        out = torch.zeros_like(h).index_add_(0, dst, h[src] * weight[:, None])
        return out + self.bias


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = GCNLayer(FEATURES, HIDDEN)
        self.conv2 = GCNLayer(HIDDEN, CLASSES)

    def forward(self, x, graph):
        x = F.dropout(x, DROPOUT, self.training)
        x = F.relu(self.conv1(x, graph))
        x = F.dropout(x, DROPOUT, self.training)
        return self.conv2(x, graph)


def accuracy(logits, y):
    return (logits.argmax(1) == y).float().mean().item()


def run(seed, x, y, pairs):
    set_seed(seed)
    perm = torch.randperm(NODES)
    train, val, test = perm[:80], perm[80:280], perm[280:]
    model = GCN()
    optimizer = torch.optim.Adam(
        [{"params": model.conv1.parameters(), "weight_decay": WEIGHT_DECAY}, {"params": model.conv2.parameters(), "weight_decay": 0}], lr=LR
    )
    best_val, best, since = float("inf"), None, 0
    for epoch in range(MAX_EPOCHS):
        model.train()
        kept = pairs[:, torch.rand(pairs.size(1)) >= DROP_EDGE]
        logits = model(x, normalise(kept))
        loss = F.cross_entropy(logits[train], y[train])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

        model.eval()
        with torch.no_grad():
            logits = model(x, normalise(pairs))
            val_loss = F.cross_entropy(logits[val], y[val]).item()
            val_acc = accuracy(logits[val], y[val])
        if val_loss < best_val:
            best_val, since = val_loss, 0
            best = {k: v.clone() for k, v in model.state_dict().items()}
        else:
            since += 1
        if epoch % 15 == 0:
            print(f"  epoch {epoch:03d} loss {loss.item():.4f} val_loss {val_loss:.4f} val_acc {val_acc:.4f}")
        if since >= PATIENCE:
            print(f"  early stop at {epoch}")
            break
    model.load_state_dict(best)
    model.eval()
    with torch.no_grad():
        logits = model(x, normalise(pairs))
    torch.save(best, f"gcn_{seed}.pt")
    return accuracy(logits[test], y[test]), F.cross_entropy(logits[test], y[test]).item()


x, y, pairs = make_graph()
accs, losses = [], []
for seed in (0, 1, 2):
    acc, test_loss = run(seed, x, y, pairs)
    print(f"seed {seed}: test acc {acc:.4f} loss {test_loss:.4f}")
    accs.append(acc)
    losses.append(test_loss)
print(f"test accuracy {np.mean(accs):.4f} +- {np.std(accs):.4f}, loss {np.mean(losses):.4f}")
