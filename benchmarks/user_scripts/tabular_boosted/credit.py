"""Credit default MLP, 3-fold CV. pandas if there, else csv."""
import copy
import math

import numpy as np
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

try:
    import pandas as pd
except ImportError:
    pd = None

CONFIG = {
    'num': ['age', 'income', 'debt', 'months'],
    'cat': ['city', 'job'],
    'target': 'default',
    'folds': 3,
    'epochs': 4,
    'bs': 64,
    'lr': 5e-3,
    'hidden': [48, 24],
    'gamma': 1.5,
    'swa_from': 2,
    'seed': 8,
}
DEVICE = 'cuda' if torch.cuda.is_available() else 'cpu'


def read(path):
    if pd is not None:
        df = pd.read_csv(path)
        return {c: df[c].to_numpy() for c in df.columns}
    import csv
    rows = list(csv.DictReader(open(path)))
    out = {}
    for c in rows[0]:
        col = [r[c] for r in rows]
        try:
            out[c] = np.array([float(v) if v else np.nan for v in col])
        except ValueError:
            out[c] = np.array(col)
    return out


def featurize(df, cfg):
    num = np.stack([df[c].astype(float) for c in cfg['num']], 1)
    num[:, 1:3] = np.log1p(num[:, 1:3])
    miss = np.isnan(num).any(1, keepdims=True)
    num = np.where(np.isnan(num), np.nanmedian(num, 0), num)
    cats = np.stack([np.unique(df[c].astype(str), return_inverse=True)[1] for c in cfg['cat']], 1)
    return np.concatenate([num, miss], 1), cats, df[cfg['target']].astype(np.float32)


class Net(nn.Module):
    def __init__(self, n_num, cards, hidden):
        super().__init__()
        self.embs = nn.ModuleList([nn.Embedding(c, 4) for c in cards])
        # normaliser, filled by hand per fold
        self.register_buffer('mu', torch.zeros(n_num))
        self.register_buffer('sd', torch.ones(n_num))
        sizes = [n_num + 4 * len(cards)] + hidden
        self.layers = nn.ModuleList([weight_norm(nn.Linear(a, b)) for a, b in zip(sizes, sizes[1:])])
        self.bn = nn.BatchNorm1d(hidden[-1])
        self.head = nn.Linear(hidden[-1], 1)

    def forward(self, x, c):
        x = (x - self.mu) / self.sd
        x = torch.cat([x] + [e(c[:, k]) for k, e in enumerate(self.embs)], 1)
        for l in self.layers:
            x = torch.relu(l(x))
        return self.head(self.bn(x)).squeeze(1)


def focal(p, y, gamma):
    # by hand on probabilities, small eps
    p = torch.sigmoid(p)
    pt = p * y + (1 - p) * (1 - y)
    return -((1 - pt) ** gamma * torch.log(pt + 1e-7))


def train_step(model, opt, sched, batch, gamma):
    """returns python floats"""
    x, c, y, w = [t.to(DEVICE) for t in batch]
    opt.zero_grad()
    out = model(x.float(), c)
    loss = (focal(out, y, gamma) * w).sum() / w.sum()
    if math.isnan(loss.item()):
        raise RuntimeError('nan loss')
    loss.backward()
    opt.step()
    sched.step()
    with torch.no_grad():
        acc = ((out > 0).float() == y).float().mean()
    return loss.item(), acc.item()


def predict(model, loader):
    model.eval()
    ps = []
    for x, c, *_ in loader:
        p = torch.sigmoid(model(x.float().to(DEVICE), c.to(DEVICE)))
        ps.extend(p.tolist())
    return np.array(ps)


def auc(y, p):
    order = np.argsort(p, kind='mergesort')
    ranks = np.empty(len(p))
    ranks[order] = np.arange(1, len(p) + 1)
    pos = y == 1
    return (ranks[pos].sum() - pos.sum() * (pos.sum() + 1) / 2) / (pos.sum() * (~pos).sum())


def average_states(states):
    avg = {k: v.clone() for k, v in states[0].items()}
    for k in avg:
        if avg[k].dtype.is_floating_point:
            avg[k] = sum(s[k] for s in states) / len(states)
    return avg


def run_fold(fold, num, cats, y, cards, cfg):
    idx = np.arange(len(y))
    va, tr = idx % cfg['folds'] == fold, idx % cfg['folds'] != fold
    torch.manual_seed(cfg['seed'] + fold)
    weight = torch.ones(int(tr.sum()))
    T = lambda m: (torch.from_numpy(num[m]), torch.from_numpy(cats[m]), torch.from_numpy(y[m]))
    train_ds = TensorDataset(*T(tr), weight)         # shares memory with `weight`
    val_dl = DataLoader(TensorDataset(*T(va)), batch_size=256)
    full_dl = DataLoader(train_ds, batch_size=256)

    model = Net(num.shape[1], cards, cfg['hidden']).to(DEVICE)
    model.mu.copy_(torch.from_numpy(num[tr].mean(0)))
    model.sd.copy_(torch.from_numpy(num[tr].std(0) + 1e-6))
    opt = torch.optim.AdamW(model.parameters(), lr=cfg['lr'])
    pos = y[tr].mean()
    probs = torch.from_numpy(np.where(y[tr] == 1, 0.5 / pos, 0.5 / (1 - pos)))
    n_steps = cfg['epochs'] * math.ceil(tr.sum() / cfg['bs'])
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, n_steps)

    snaps, best, best_state = [], 0.0, None
    for ep in range(cfg['epochs']):
        torch.manual_seed(1000 * fold + ep)           # same order whatever happened before
        dl = DataLoader(train_ds, batch_size=cfg['bs'], sampler=WeightedRandomSampler(probs, len(train_ds)))
        model.train()
        losses, accs = [], []
        for batch in dl:
            l, a = train_step(model, opt, sched, batch, cfg['gamma'])
            losses.append(l)
            accs.append(a)
        pv, pt = predict(model, val_dl), predict(model, full_dl)
        a = auc(y[va], pv)
        # boosting-like: rows that are predicted badly count more, written INTO the dataset's tensor
        err = torch.from_numpy(np.abs(pt - y[tr])).float()
        weight.mul_(torch.exp(0.5 * err))
        weight.div_(weight.mean())
        print('fold %d epoch %d loss %.6f acc %.5f auc %.6f lr %.6f wmax %.5f' % (
            fold, ep, np.mean(losses), np.mean(accs), a, sched.get_last_lr()[0], weight.max()))
        if ep >= cfg['swa_from']:
            snaps.append(copy.deepcopy(model.state_dict()))
        if a > best:
            best, best_state = a, copy.deepcopy(model.state_dict())
    if snaps:
        model.load_state_dict(average_states(snaps))
        a = auc(y[va], predict(model, val_dl))
        print('fold %d averaged auc %.6f best %.6f' % (fold, a, best))
        if a < best:
            model.load_state_dict(best_state)
    return predict(model, val_dl), va


if __name__ == '__main__':
    df = read('credit.csv')
    num, cats, y = featurize(df, CONFIG)
    cards = [int(cats[:, k].max()) + 1 for k in range(cats.shape[1])]
    oof = np.zeros(len(y))
    for f in range(CONFIG['folds']):
        p, m = run_fold(f, num, cats, y, cards, CONFIG)
        oof[m] = p
    print('oof auc %.6f mean %.6f' % (auc(y, oof), oof.mean()))
