import copy

import numpy as np
import torch
import torch.nn.functional as F

from .base import Params
from .columns import Encoder
from .net import Net


def clone(est):
    return type(est)(**est.get_params())


def auc(y, s):
    order = np.argsort(s, kind='stable')
    rank = np.empty(len(s))
    rank[order] = np.arange(1, len(s) + 1)
    pos = y == 1
    return (rank[pos].sum() - pos.sum() * (pos.sum() + 1) / 2) / max(1, pos.sum() * (~pos).sum())


class TabNN(Params):
    def __init__(self, hidden=(48, 24), lr=1e-2, batch=64, epochs=30, patience=4, dropout=.2, mixup=.2,
                 pos_weight='auto', device='auto', seed=0, verbose=1):
        self.net_ = None

    # ---- plumbing
    @property
    def dev(self):
        if self.device == 'auto':
            return torch.device('cuda' if torch.cuda.is_available() else 'cpu')
        return torch.device(self.device)

    def __getstate__(self):
        d = dict(self.__dict__)
        d.pop('opt_', None)               # optimizers of other torch versions do not load
        if self.net_ is not None:
            d['net_'] = copy.deepcopy(self.net_).cpu()
        return d

    def __setstate__(self, d):
        self.__dict__.update(d)
        if self.net_ is not None:
            self.net_.to(self.dev)

    def tensors(self, rows, y=None):
        num, cat = self.enc_.transform(rows)
        out = [torch.stack(num, 1).to(self.dev), torch.stack(cat, 1).to(self.dev)]
        if y is not None:
            out.append(torch.tensor(y, dtype=torch.float32).to(self.dev))
        return out

    def batches(self, n, shuffle):
        """index batches; a last batch of one is merged into the one before (BatchNorm)"""
        idx = self.rs_.permutation(n) if shuffle else np.arange(n)
        cuts = list(range(self.batch, n, self.batch))
        if cuts and n - cuts[-1] == 1:
            cuts.pop()
        for part in np.split(idx, cuts):
            yield torch.from_numpy(part).to(self.dev)

    # ---- training
    def init(self, rows, y):
        torch.manual_seed(self.seed)
        self.rs_ = np.random.RandomState(self.seed)
        self.enc_ = Encoder().fit(rows)
        self.net_ = Net(self.enc_.sizes(), len(self.enc_.num), self.hidden, self.dropout).to(self.dev)
        self.opt_ = torch.optim.AdamW(self.net_.parameters(), lr=self.lr, weight_decay=1e-3)
        self.temp_ = 1.0
        self.history_ = []
        pw = (len(y) - sum(y)) / max(1, sum(y)) if self.pos_weight == 'auto' else self.pos_weight
        self.pw_ = torch.tensor(float(pw)).to(self.dev)

    def partial_fit(self, rows, y):
        """one pass over the rows; public, called by outside schedulers too"""
        if self.net_ is None:
            self.init(rows, y)
        num, cat, t = self.tensors(rows, y)
        self.net_.train()
        total = 0.0
        for b in self.batches(len(t), True):
            lam = self.rs_.beta(self.mixup, self.mixup) if self.mixup else 1.0
            perm = torch.from_numpy(self.rs_.permutation(len(b))).to(self.dev)
            x = lam * num[b] + (1 - lam) * num[b][perm]
            c = cat[b] if lam > .5 else cat[b][perm]
            out = self.net_(x, c)
            lb = F.binary_cross_entropy_with_logits(out, t[b], pos_weight=self.pw_, reduction='none')
            lp = F.binary_cross_entropy_with_logits(out, t[b][perm], pos_weight=self.pw_, reduction='none')
            loss = (lam * lb + (1 - lam) * lp).mean()
            self.opt_.zero_grad()
            loss.backward()
            for e in self.net_.embs:
                e.weight.grad[0].zero_()          # the "never seen" row stays at its start
            self.opt_.step()
            total += loss.item() * len(b)
        return total / len(t)

    def fit(self, rows, y, eval_set=None):
        self.init(rows, y)
        best, best_state, wait = -1.0, None, 0
        for ep in range(self.epochs):
            loss = self.partial_fit(rows, y)
            rec = {'epoch': ep, 'loss': loss}
            if eval_set is not None:
                rec['auc'] = float(auc(np.asarray(eval_set[1]), self.decision_function(eval_set[0])))
                if rec['auc'] > best:
                    best, wait = rec['auc'], 0
                    best_state = {k: v.detach().clone() for k, v in self.net_.state_dict().items()}
                else:
                    wait += 1
                    if wait % 2 == 0:
                        for g in self.opt_.param_groups:
                            g['lr'] *= .5
            self.history_.append(rec)
            if self.verbose and ep % self.verbose == 0:
                print('   ', rec)
            if wait >= self.patience:
                break
        if best_state is not None:
            self.net_.load_state_dict(best_state)
            self.calibrate(*eval_set)
        return self

    def calibrate(self, rows, y):
        """temperature by LBFGS on held out rows"""
        s = torch.tensor(self.decision_function(rows))
        t = torch.tensor(y, dtype=torch.float32)
        logt = torch.zeros((), requires_grad=True)
        opt = torch.optim.LBFGS([logt], lr=.5, max_iter=20)

        def closure():
            opt.zero_grad()
            l = F.binary_cross_entropy_with_logits(s / logt.exp(), t)
            l.backward()
            return l
        opt.step(closure)
        self.temp_ = logt.exp().item()

    # ---- prediction
    def decision_function(self, rows):
        self.net_.eval()
        num, cat = self.tensors(rows)
        out = []
        for b in self.batches(len(num), False):
            out.append(self.net_(num[b], cat[b]).detach().cpu().numpy())
        return np.concatenate(out)

    def predict_proba(self, rows):
        p = 1 / (1 + np.exp(-self.decision_function(rows).astype(np.float64) / self.temp_))
        return np.stack([1 - p, p], 1)

    def score(self, rows, y):
        return float(auc(np.asarray(y), self.decision_function(rows)))

    def importances(self, rows, y):
        """mean |gradient x input| per column, numbers and embedded strings"""
        self.net_.eval()
        num, cat, t = self.tensors(rows, y)
        num.requires_grad_(True)
        acts = []
        hs = [e.register_forward_hook(lambda m, i, o: (o.retain_grad(), acts.append(o))[0]) for e in self.net_.embs]
        F.binary_cross_entropy_with_logits(self.net_(num, cat), t, reduction='sum').backward()
        for h in hs:
            h.remove()
        self.net_.zero_grad()
        names = list(self.enc_.num) + list(self.enc_.cat)
        vals = (num.grad * num).abs().mean(0).tolist() + [(a.grad * a).abs().sum(1).mean().item() for a in acts]
        return dict(zip(names, vals))
