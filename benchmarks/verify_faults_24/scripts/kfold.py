"""K-fold tabular regression: target-encoded category, early stopping on validation, best weights per fold."""
import argparse
import copy
import os

import numpy as np
import torch
import torch.nn as nn


def make_table(n=1100, cats=90, seed=2):
    rng = np.random.default_rng(seed)
    cat = rng.integers(0, cats, n)
    effect = rng.normal(0, 1.0, cats)
    x = rng.normal(0, 1, (n, 8)).astype(np.float32)
    y = effect[cat] + 1.2 * np.sin(1.5 * x[:, 0]) + x[:, 1] * (x[:, 2] > 0) + 0.5 * np.abs(x[:, 3]) + rng.normal(0, 0.8, n)
    return x, cat, y.astype(np.float32)


def target_encode(cat, y, cats, prior=5.0):
    """Smoothed mean target per category, from the rows given."""
    s = np.bincount(cat, weights=y, minlength=cats)
    n = np.bincount(cat, minlength=cats)
    return ((s + prior * y.mean()) / (n + prior)).astype(np.float32)


class MLP(nn.Module):
    def __init__(self, d, width=96, p=0.25):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(d, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(p),
            nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(p),
            nn.Linear(width, 1))

    def forward(self, x):
        return self.net(x).squeeze(1)


@torch.no_grad()
def predict(model, x, bs=128):
    model.eval()
    return torch.cat([model(x[i:i + bs]) for i in range(0, len(x), bs)])


def features(x, cat, table, mean, std):
    f = np.concatenate([x, table[cat][:, None]], 1)
    return torch.from_numpy((f - mean) / std)


def train_fold(x, cat, y, tr, va, args):
    table = target_encode(cat[tr], y[tr], cat.max() + 1)
    raw = np.concatenate([x[tr], table[cat[tr]][:, None]], 1)
    mean, std = raw.mean(0), raw.std(0)
    xt, xv = features(x[tr], cat[tr], table, mean, std), features(x[va], cat[va], table, mean, std)
    yt, yv = torch.from_numpy(y[tr]), torch.from_numpy(y[va])
    model = MLP(xt.size(1))
    opt = torch.optim.AdamW(model.parameters(), lr=8e-3, weight_decay=0.02)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.5, patience=4)
    best, best_state, bad = float("inf"), None, 0
    for epoch in range(args.epochs):
        model.train()
        order = torch.randperm(len(xt))
        total = 0.0
        for i in range(0, len(xt), args.batch):
            idx = order[i:i + args.batch]
            loss = nn.functional.mse_loss(model(xt[idx]), yt[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item() * len(idx)
        val = nn.functional.mse_loss(predict(model, xv), yv).item()
        plateau.step(val)
        if epoch % 5 == 0:
            print(f"  epoch {epoch} loss {total / len(xt):.4f} val {val:.4f}")
        if val < best - 1e-4:
            best, bad = val, 0
            best_state = copy.deepcopy(model.state_dict())
        else:
            bad += 1
            if bad >= args.patience:
                break
    model.load_state_dict(best_state)
    return predict(model, xv).numpy(), best, best_state


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--folds", type=int, default=3)
    ap.add_argument("--epochs", type=int, default=24)
    ap.add_argument("--patience", type=int, default=10)
    ap.add_argument("--batch", type=int, default=64)
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--out", default=".")
    args = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    x, cat, y = make_table()
    parts = np.array_split(np.random.permutation(len(y)), args.folds)
    oof, states = np.zeros_like(y), []
    for k in range(args.folds):
        tr = np.concatenate([p for j, p in enumerate(parts) if j != k])
        pred, best, state = train_fold(x, cat, y, tr, parts[k], args)
        oof[parts[k]] = pred
        states.append(state)
        print(f"fold {k} best val {best:.4f}")
    print(f"oof mse {((oof - y) ** 2).mean():.4f}")
    os.makedirs(args.out, exist_ok=True)
    torch.save(states, os.path.join(args.out, "folds.pt"))


if __name__ == "__main__":
    main()
