#!/usr/bin/env python
# coding: utf-8

# # 🫁 Ventilator pressure – deep LSTM + EMA  [LB 0.158]
# *v14: back to MAE on the inspiratory phase, EMA of the weights, cosine per batch.*
#
# If you like it please upvote 😊 &nbsp; Based on the great notebooks of the others!

# In[1]:


import gc
import os
import random
import time
import warnings

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

try:
    from tqdm.auto import tqdm
except ImportError:                      # kaggle has it, my laptop does not
    class tqdm:
        def __init__(self, it, **kw):
            self.it, self.post = it, {}
        def __iter__(self):
            return iter(self.it)
        def set_postfix(self, **kw):
            self.post = kw

warnings.filterwarnings("ignore")


# In[2]:


class CFG:
    debug = bool(int(os.environ.get("DEBUG", "0")))
    seed = 42
    n_breaths = 240 if debug else 75000
    n_test = 96 if debug else 50000
    steps = 80
    n_folds = 3 if debug else 10
    trn_folds = [0] if debug else [0, 1, 2, 3, 4]
    epochs = 2 if debug else 150
    batch_size = 32 if debug else 512
    hidden = 24 if debug else 512
    layers = 2 if debug else 4
    lr = 1e-3
    clip = 1000.0
    ema_decay = 0.995
    patience = 20
    num_workers = 0
    out_dir = os.environ.get("OUT", "/tmp/vent_out")


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
os.makedirs(CFG.out_dir, exist_ok=True)


def seed_everything(seed=42):
    random.seed(seed)
    os.environ["PYTHONHASHSEED"] = str(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)
    torch.backends.cudnn.deterministic = True


seed_everything(CFG.seed)


# ## Data
# The competition files are not attached in this copy, so the lung is simulated (RC model).

# In[3]:


def simulate(n, rng):
    """long table like train.csv: breath_id, R, C, time_step, u_in, u_out, pressure"""
    L = CFG.steps
    R = rng.choice([5, 20, 50], n)
    C = rng.choice([10, 20, 50], n)
    t = np.cumsum(rng.uniform(0.03, 0.035, (n, L)), 1)
    amp = rng.uniform(2, 40, (n, 1))
    u_in = amp * np.exp(-t * rng.uniform(0.2, 3, (n, 1))) * (t < 1.0) + 4.9 * (t >= 1.0)
    u_out = (t >= 1.0).astype(np.int64)
    p = np.zeros((n, L))
    vol = np.zeros(n)
    for k in range(L):
        vol = vol * np.where(u_out[:, k] == 1, 0.85, 1.0) + u_in[:, k] * 0.033
        p[:, k] = 5 + vol * 8 / np.sqrt(C) + u_in[:, k] * np.sqrt(R) / 8
    p = np.round((p + rng.normal(0, .05, p.shape)) / 0.0703) * 0.0703
    return {"breath_id": np.repeat(np.arange(n), L), "R": np.repeat(R, L), "C": np.repeat(C, L),
            "time_step": t.reshape(-1), "u_in": u_in.reshape(-1), "u_out": u_out.reshape(-1),
            "pressure": p.reshape(-1)}


rng = np.random.default_rng(CFG.seed)
train, test = simulate(CFG.n_breaths, rng), simulate(CFG.n_test, rng)


# ## Feature engineering

# In[4]:


def add_features(df):
    area, lag1, lag2, cum = [], [], [], []
    ids = df["breath_id"]
    for b in np.unique(ids):
        m = ids == b
        u = df["u_in"][m]
        dt = np.diff(df["time_step"][m], prepend=0.0)
        area.append(np.cumsum(u * dt))
        cum.append(np.cumsum(u))
        lag1.append(np.concatenate([[0.0], u[:-1]]))
        lag2.append(np.concatenate([[0.0, 0.0], u[:-2]]))
    df["area"], df["u_cum"] = np.concatenate(area), np.concatenate(cum)
    df["lag1"], df["lag2"] = np.concatenate(lag1), np.concatenate(lag2)
    df["diff1"], df["diff2"] = df["u_in"] - df["lag1"], df["u_in"] - df["lag2"]
    for r in (5, 20, 50):
        df["R_%d" % r] = (df["R"] == r).astype(float)
    for c in (10, 20, 50):
        df["C_%d" % c] = (df["C"] == c).astype(float)
    return df


t0 = time.time()
train, test = add_features(train), add_features(test)
feats = [c for c in train if c not in ("breath_id", "pressure", "R", "C")]
med = {c: (np.median(train[c]), np.subtract(*np.percentile(train[c], [75, 25])) + 1e-6) for c in feats}


def to_cube(df):
    x = np.stack([(df[c] - med[c][0]) / med[c][1] for c in feats], -1)
    return x.reshape(-1, CFG.steps, len(feats))


X, X_test = to_cube(train), to_cube(test)
Y = train["pressure"].reshape(-1, CFG.steps)
U = train["u_out"].reshape(-1, CFG.steps)
print("features", X.shape, "%.1fs" % (time.time() - t0))


# In[5]:


class VentilatorDataset(Dataset):
    def __init__(self, x, y=None, u=None):
        self.x, self.y, self.u = x, y, u

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        d = {"x": torch.tensor(self.x[i]).float()}
        if self.y is not None:
            d["y"] = torch.tensor(self.y[i]).float()
            d["mask"] = 1 - torch.tensor(self.u[i]).float()
        return d


class VentNet(nn.Module):
    def __init__(self, n_in):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(n_in, CFG.hidden // 2), nn.ReLU(), nn.Linear(CFG.hidden // 2, CFG.hidden), nn.ReLU())
        self.lstm = nn.LSTM(CFG.hidden, CFG.hidden, CFG.layers, batch_first=True, bidirectional=True)
        self.head = nn.Sequential(nn.Linear(CFG.hidden * 2, 50), nn.SELU(), nn.Linear(50, 1))
        for n, p in self.lstm.named_parameters():
            if "weight" in n:
                nn.init.orthogonal_(p)

    def forward(self, x):
        x = self.mlp(x)
        h0 = torch.zeros(CFG.layers * 2, x.size(0), CFG.hidden)
        h0 = h0.to(x.device)
        c0 = torch.zeros(CFG.layers * 2, x.size(0), CFG.hidden).to(x.device)
        x, _ = self.lstm(x, (h0, c0))
        return self.head(x).squeeze(-1)


def masked_mae(pred, y, mask):
    return ((pred - y).abs() * mask).sum() / mask.sum()


class EMA:
    def __init__(self, model, decay):
        self.decay = decay
        self.shadow = {k: p.detach().clone() for k, p in model.named_parameters()}

    @torch.no_grad()
    def update(self, model):
        for k, p in model.named_parameters():
            self.shadow[k] = self.decay * self.shadow[k] + (1 - self.decay) * p

    @torch.no_grad()
    def swap(self, model):
        for k, p in model.named_parameters():
            tmp = p.detach().clone()
            p.copy_(self.shadow[k])
            self.shadow[k] = tmp


# In[6]:


def train_one_epoch(model, loader, opt, sched, scaler, ema):
    model.train()
    total, n = 0.0, 0
    bar = tqdm(loader, total=len(loader))
    for batch in bar:
        x, y, mask = batch["x"].to(device), batch["y"].to(device), batch["mask"].to(device)
        opt.zero_grad()
        with torch.autocast(device.type, dtype=torch.float16, enabled=device.type == "cuda"):
            loss = masked_mae(model(x), y, mask)
        scaler.scale(loss).backward()
        nn.utils.clip_grad_norm_(model.parameters(), CFG.clip)
        scaler.step(opt)
        scaler.update()
        sched.step()
        ema.update(model)
        total += loss.item() * len(x)
        n += len(x)
        bar.set_postfix(loss="%.4f" % loss.item(), lr="%.2e" % sched.get_last_lr()[0])
        del x, y, mask, batch
        gc.collect()
        torch.cuda.empty_cache()
    return total / n


@torch.no_grad()
def valid_one_epoch(model, loader):
    model.eval()
    preds = []
    for batch in loader:
        pred = model(batch["x"].to(device))
        preds.append(pred.float().cpu().numpy())
    return np.concatenate(preds)


def predict(model, loader):
    model.eval()
    preds = []
    for batch in loader:
        pred = model(batch["x"].to(device))
        preds.append(pred.detach().cpu().numpy())
    return np.concatenate(preds)


# In[7]:


fold_of = np.arange(CFG.n_breaths) % CFG.n_folds
rng.shuffle(fold_of)
oof = np.zeros_like(Y)
sub = np.zeros((CFG.n_test, CFG.steps))
test_loader = DataLoader(VentilatorDataset(X_test), batch_size=CFG.batch_size * 2)

for fold in CFG.trn_folds:
    print("---- fold %d ----" % fold)
    tr, va = np.where(fold_of != fold)[0], np.where(fold_of == fold)[0]
    trn_loader = DataLoader(VentilatorDataset(X[tr], Y[tr], U[tr]), batch_size=CFG.batch_size, shuffle=True,
                            num_workers=CFG.num_workers, drop_last=True)
    val_loader = DataLoader(VentilatorDataset(X[va], Y[va], U[va]), batch_size=CFG.batch_size * 2)
    model = VentNet(len(feats)).to(device)
    ema = EMA(model, CFG.ema_decay)
    opt = torch.optim.AdamW(model.parameters(), lr=CFG.lr, weight_decay=0.01)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, CFG.epochs * len(trn_loader))
    scaler = torch.amp.GradScaler("cuda", enabled=device.type == "cuda")
    best, wait = 1e9, 0
    for epoch in range(CFG.epochs):
        t0 = time.time()
        trn = train_one_epoch(model, trn_loader, opt, sched, scaler, ema)
        ema.swap(model)
        pred = valid_one_epoch(model, val_loader)
        score = np.abs(pred - Y[va])[U[va] == 0].mean()
        print("fold %d epoch %3d  trn %.4f  val %.4f  %.1fs" % (fold, epoch, trn, score, time.time() - t0))
        if score < best:
            best, wait = score, 0
            oof[va] = pred
            torch.save(model.state_dict(), "%s/fold%d.pth" % (CFG.out_dir, fold))
        else:
            wait += 1
        ema.swap(model)
        if wait > CFG.patience:
            break
    model.load_state_dict(torch.load("%s/fold%d.pth" % (CFG.out_dir, fold), map_location=device))
    sub += predict(model, test_loader) / len(CFG.trn_folds)
    del model, opt, ema
    gc.collect()
    torch.cuda.empty_cache()


# ## Post-processing
# pressures live on a grid, snap to it

# In[8]:


grid = np.unique(train["pressure"])
pos = np.clip(np.searchsorted(grid, sub), 1, len(grid) - 1)
sub = np.where(sub - grid[pos - 1] < grid[pos] - sub, grid[pos - 1], grid[pos])
done = np.isin(fold_of, CFG.trn_folds)
print("CV %.4f" % np.abs(oof - Y)[done][U[done] == 0].mean())
np.savetxt("%s/submission.csv" % CFG.out_dir, np.stack([np.arange(sub.size) + 1, sub.reshape(-1)], 1),
           fmt=["%d", "%.5f"], delimiter=",", header="id,pressure", comments="")
