"""Quantile regression for hourly load on tabular data with drift; early stopping, best weights restored."""
import argparse
import copy
import os

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

QUANTILES = [0.1, 0.5, 0.9]


def make_table(n=5000, seed=8):
    """Rows in time order. Features on very different scales; noise depends on the inputs; slow drift."""
    rng = np.random.default_rng(seed)
    t = np.arange(n) / n
    hour = rng.integers(0, 24, size=n)
    temp = 12 + 9 * np.sin(2 * np.pi * t) + 6 * t + 4 * rng.normal(size=n)
    wind = rng.gamma(2.0, 3.0, size=n)
    income = rng.lognormal(10.0, 0.4, size=n)
    press = 1013 + 8 * rng.normal(size=n)
    junk = rng.normal(size=(n, 4))
    level = 300 + 40 * np.sin(2 * np.pi * hour / 24) + 2.5 * (temp - 18).clip(0) ** 1.5 + 3 * (10 - temp).clip(0) \
        + 1.5 * wind + 20 * np.log(income / 20000) + 15 * t
    noise = (6 + 0.5 * wind + 5 * (hour > 16)) * rng.standard_t(5, size=n)
    x = np.column_stack([temp, wind, income / 1000, press, junk]).astype(np.float32)
    return torch.from_numpy(x), torch.from_numpy(hour), torch.from_numpy((level + noise).astype(np.float32))


class QuantileNet(nn.Module):
    """Lowest quantile plus positive increments, so the quantiles never cross."""

    def __init__(self, n_feat, hidden=64, drop=0.1):
        super().__init__()
        self.hour = nn.Embedding(24, 6)
        self.net = nn.Sequential(nn.Linear(n_feat + 6, hidden), nn.ReLU(), nn.Dropout(drop),
                                 nn.Linear(hidden, hidden), nn.ReLU(), nn.Dropout(drop),
                                 nn.Linear(hidden, len(QUANTILES)))

    def forward(self, x, hour):
        raw = self.net(torch.cat([x, self.hour(hour)], 1))
        steps = torch.cat([raw[:, :1], nn.functional.softplus(raw[:, 1:])], 1)
        return steps.cumsum(1)


def pinball(pred, y):
    total = 0.0
    for k, q in enumerate(QUANTILES):
        err = y - pred[:, k]
        total = total + torch.max(q * err, (q - 1) * err).mean()
    return total / len(QUANTILES)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--max-epochs", type=int, default=60)
    ap.add_argument("--batch", type=int, default=64)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--patience", type=int, default=8)
    ap.add_argument("--seed", type=int, default=4)
    ap.add_argument("--out", default="quant_out")
    args = ap.parse_args()
    torch.manual_seed(args.seed)
    x, hour, y = make_table()
    n_tr, n_va = 3330, 700
    mu, sd = x[:n_tr].mean(0), x[:n_tr].std(0)
    x = (x - mu) / sd
    y_mu, y_sd = y[:n_tr].mean(), y[:n_tr].std()
    y = (y - y_mu) / y_sd
    parts = [slice(0, n_tr), slice(n_tr, n_tr + n_va), slice(n_tr + n_va, None)]
    train, val, test = [TensorDataset(x[p], hour[p], y[p]) for p in parts]
    train_dl = DataLoader(train, batch_size=args.batch, shuffle=True)
    val_dl = DataLoader(val, batch_size=args.batch)

    model = QuantileNet(x.shape[1])
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.5, patience=3)
    best, best_state, bad = float("inf"), None, 0
    for epoch in range(args.max_epochs):
        model.train()
        run, seen = 0.0, 0
        for xb, hb, yb in train_dl:
            loss = pinball(model(xb, hb), yb)
            opt.zero_grad()
            loss.backward()
            opt.step()
            run += loss.item() * len(yb)
            seen += len(yb)
        model.eval()
        tot, cnt = 0.0, 0
        with torch.no_grad():
            for xb, hb, yb in val_dl:
                tot += pinball(model(xb, hb), yb).item() * len(yb)
                cnt += len(yb)
        val_loss = tot / cnt
        plateau.step(val_loss)
        print(f"epoch {epoch} train {run / seen:.5f} val {val_loss:.5f} lr {opt.param_groups[0]['lr']:.6f}", flush=True)
        if val_loss < best - 1e-5:
            best, bad = val_loss, 0
            best_state = copy.deepcopy(model.state_dict())
        else:
            bad += 1
            if bad >= args.patience:
                print(f"stopped after epoch {epoch}")
                break
    model.load_state_dict(best_state)
    model.eval()
    with torch.no_grad():
        xt, ht, yt = test.tensors
        pred = model(xt, ht)
        cover = [(yt <= pred[:, k]).float().mean().item() for k in range(len(QUANTILES))]
        print(f"best val {best:.5f} test pinball {pinball(pred, yt).item():.5f} "
              "coverage " + " ".join(f"{c:.3f}" for c in cover))
    os.makedirs(args.out, exist_ok=True)
    torch.save({"model": model.state_dict(), "mu": mu, "sd": sd, "y_mu": y_mu, "y_sd": y_sd},
               os.path.join(args.out, "model.pt"))


if __name__ == "__main__":
    main()
