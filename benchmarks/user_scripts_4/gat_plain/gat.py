"""Graph attention network in plain torch on a stochastic block model (think Cora, but offline)."""
import argparse
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def sbm(n, k, d, rng):
    y = rng.integers(0, k, n)
    prob = np.where(y[:, None] == y[None], 0.03, 0.004)
    upper = np.triu(rng.random((n, n)) < prob, 1)
    src, dst = np.nonzero(upper | upper.T)
    x = rng.normal(0, 1, (n, d)) + 0.35 * np.eye(k)[y] @ rng.normal(0, 1, (k, d))
    return x, np.stack([src, dst]), y


class GATLayer(nn.Module):
    """The 2018 dense version: N x N attention masked by the adjacency."""

    def __init__(self, din, dout, alpha=0.2, p=0.4, concat=True):
        super().__init__()
        self.W = nn.Parameter(nn.init.xavier_uniform_(torch.empty(din, dout), gain=1.414))
        self.a = nn.Parameter(nn.init.xavier_uniform_(torch.empty(2 * dout, 1), gain=1.414))
        self.dout, self.alpha, self.p, self.concat = dout, alpha, p, concat

    def forward(self, x, adj):
        h = x @ self.W
        n = h.size(0)
        left, right = h @ self.a[:self.dout], h @ self.a[self.dout:]
        e = F.leaky_relu(left.expand(n, n) + right.t().expand(n, n), self.alpha)
        mask = -9e15 * torch.ones(e.size()).to(e.device)
        att = F.softmax(torch.where(adj > 0, e, mask), dim=1)
        att = F.dropout(att, self.p, training=self.training)
        out = att @ h
        return F.elu(out) if self.concat else out


class GAT(nn.Module):
    def __init__(self, din, hid, k, heads=4):
        super().__init__()
        self.heads = nn.ModuleList(GATLayer(din, hid) for _ in range(heads))
        self.out = GATLayer(hid * heads, k, concat=False)

    def forward(self, x, edge_index):
        adj = torch.zeros(x.size(0), x.size(0), device=x.device)
        adj[edge_index[0], edge_index[1]] = 1
        adj = adj + torch.eye(x.size(0)).to(x.device)
        x = F.dropout(x, 0.4, training=self.training)
        x = torch.cat([head(x, adj) for head in self.heads], dim=1)
        return self.out(F.dropout(x, 0.4, training=self.training), adj)


def drop_edges(edge_index, p):
    keep = torch.rand(edge_index.size(1), device=edge_index.device) >= p
    return edge_index[:, keep]


def accuracy(logits, y):
    return (logits.argmax(1) == y).double().mean()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=40)
    ap.add_argument("--drop_edge", type=float, default=0.1)
    ap.add_argument("--patience", type=int, default=15)
    args = ap.parse_args()
    torch.manual_seed(72)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    x, edges, y = sbm(600, 5, 64, np.random.default_rng(72))
    x, edges, y = torch.FloatTensor(x), torch.from_numpy(edges), torch.from_numpy(y)
    perm = torch.randperm(len(y))
    idx_train, idx_val, idx_test = perm[:100], perm[100:300], perm[300:]
    model = GAT(64, 8, 5).to(device)
    opt = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    best, bad, best_state = float("inf"), 0, None
    for epoch in range(args.epochs):
        x, edges, y = x.to(device), edges.to(device), y.to(device)
        model.train()
        opt.zero_grad()
        logits = model(x, drop_edges(edges, args.drop_edge))
        loss = F.cross_entropy(logits[idx_train], y[idx_train])
        acc = accuracy(logits[idx_train], y[idx_train])
        loss.backward()
        opt.step()

        model.eval()
        logits = model(x, edges)
        val = F.cross_entropy(logits[idx_val], y[idx_val])
        print(f"epoch {epoch:03d} train {loss.item():.4f} {acc.item():.3f} val {val.item():.4f} {accuracy(logits[idx_val], y[idx_val]).item():.3f}")
        if val.item() < best:
            best, bad = val.item(), 0
            best_state = {k: v.detach().clone() for k, v in model.state_dict().items()}
        else:
            bad += 1
            if bad == args.patience:
                break
    model.load_state_dict(best_state)
    model.eval()
    with torch.no_grad():
        print("test acc %.4f" % accuracy(model(x, edges)[idx_test], y[idx_test]).item())


if __name__ == "__main__":
    main()
