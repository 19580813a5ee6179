# Day-ahead net load, probabilistic.   Run:  python forecast.py [key=value ...]
import copy
import random
import sys

import numpy as np
import torch
from torch.utils.data import DataLoader

from models.seq2seq import Seq2Seq
from utils.metrics import coverage, mape, pinball
from utils.windows import Windows, make_series

P = dict(days=150, sites=4, lookback=72, horizon=24, hidden=32, batch=48, lr=4e-3, epochs=5,
         seed=5, patience=2, adapt_lr=2e-3, quantiles=(0.1, 0.5, 0.9))
for a in sys.argv[1:]:
    k, v = a.split("=")
    P[k] = type(P[k])(v)

random.seed(P["seed"]); np.random.seed(P["seed"]); torch.manual_seed(P["seed"])
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

series, cal = make_series(P["days"], P["sites"], P["seed"])
T = series.shape[1]
cut1, cut2 = int(T * 0.7), int(T * 0.85)
# sensor outage repair: forward fill, in place, in the array the windows look at
bad = np.random.rand(*series.shape) < 0.002
for s, t in zip(*np.nonzero(bad)):
    series[s, t] = series[s, t - 1]

kw = dict(lookback=P["lookback"], horizon=P["horizon"])
train_dl = DataLoader(Windows(series, cal, 0, cut1, stride=5, **kw), batch_size=P["batch"], shuffle=True)
val_dl = DataLoader(Windows(series, cal, cut1, cut2, stride=12, **kw), batch_size=P["batch"])
test_dl = DataLoader(Windows(series, cal, cut2, T, stride=24, **kw), batch_size=16)

model = Seq2Seq(cal.shape[1], P["hidden"], len(P["quantiles"])).to(device)
opt = torch.optim.Adam(model.parameters(), lr=P["lr"])
sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.3, patience=0)


def run_epoch(dl, epoch=None):
    train = epoch is not None
    model.train(train)
    losses = []
    for past, past_cal, fut_cal, future in dl:
        past = past.to(device)
        past_cal = past_cal.to(device)
        fut_cal = fut_cal.to(device)
        future = future.to(device)
        if train:
            opt.zero_grad()
            pred = model(past, past_cal, fut_cal, future, tf_ratio=max(0.0, 0.8 - 0.2 * epoch))
        else:
            pred = model(past, past_cal, fut_cal)
        loss = pinball(pred, future, P["quantiles"])
        if train:
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
        losses.append(loss.detach().cpu().numpy())
    return float(np.mean(losses))


best, wait, best_state = np.inf, 0, None
for ep in range(P["epochs"]):
    tr = run_epoch(train_dl, ep)
    va = run_epoch(val_dl)
    sched.step(va)
    print(f"{ep:2d}  pinball train {tr:.4f}  val {va:.4f}  lr {opt.param_groups[0]['lr']:.5f}")
    if va < best:
        best, wait, best_state = va, 0, copy.deepcopy(model.state_dict())
        torch.save(best_state, "netload.pt")
    else:
        wait += 1
        if wait > P["patience"]:
            break
model.load_state_dict(best_state)


def backtest(adapt):
    """Walk forward. With adapt=True the head learns from every batch AFTER it was scored."""
    m = copy.deepcopy(model)
    m.eval()
    m.requires_grad_(False)              # cudnn has no GRU backward in eval mode
    m.head.requires_grad_(True)
    o = torch.optim.SGD(m.head.parameters(), lr=P["adapt_lr"])
    preds, trues = [], []
    for past, past_cal, fut_cal, future in test_dl:
        past, past_cal, fut_cal = past.to(device), past_cal.to(device), fut_cal.to(device)
        with torch.set_grad_enabled(adapt):
            pred = m(past, past_cal, fut_cal)
        preds.append(pred.detach().cpu().numpy())
        trues.append(future.numpy())
        if adapt:
            loss = pinball(pred, future.to(device), P["quantiles"])
            o.zero_grad()
            loss.backward()
            o.step()
    return np.concatenate(preds), np.concatenate(trues)


for adapt in (False, True):
    p, y = backtest(adapt)
    print(f"test adapt={adapt!s:5}  MAPE {mape(p[..., 1], y):.3f}%  80% band covers {coverage(p[..., 0], p[..., 2], y):.2f}%")
