# %% [markdown]
# # Homework 5: Active learning with MC dropout (BALD)
# Student: J. K., group 3. Runs as a script or cell by cell in VS Code.

# %%
import copy
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import TensorDataset, DataLoader, Subset, Dataset

dev = torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")
torch.manual_seed(2024)
np.random.seed(2024)

ROUNDS = 4
QUERY = 20
START = 20
MC = 12
EPOCHS = 14

# %% [markdown]
# ## Data: four noisy texture classes, one class is three times as noisy (aleatoric)

# %%
def textures(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 4, (n,), generator=g)
    t = torch.linspace(0, 6.28, 16)
    yy, xx = torch.meshgrid(t, t, indexing='ij')
    ph = torch.rand(n, 1, 1, generator=g) * 6.28
    base = torch.stack([torch.sin(2 * xx), torch.sin(2 * yy), torch.sin(2 * (xx + yy)), torch.sin(2 * xx) * torch.sin(2 * yy)])
    x = torch.stack([torch.roll(base[k], int(p * 3), 0) for k, p in zip(y, ph.flatten())])
    noise = torch.randn(n, 16, 16, generator=g)
    x = x + noise * torch.where(y == 3, 1.5, 0.8)[:, None, None]
    return x[:, None], y


pool_x, pool_y = textures(500, 1)
test_x, test_y = textures(230, 2)
print("pool", tuple(pool_x.shape), "class counts", torch.bincount(pool_y).tolist())


# %%
class Oracle:
    """gives labels one at a time and counts the cost; a human errs now and then"""

    def __init__(self, y, err=0.03):
        self.y, self.err, self.calls = y, err, 0
        self.rs = np.random.RandomState(0)

    def __getitem__(self, i):
        self.calls += 1
        if self.rs.rand() < self.err:
            return int(self.rs.randint(4))
        return self.y[i].item()


class LabeledPool(Dataset):
    """grows while the loop runs; the label is asked from the oracle the first time it is needed"""

    def __init__(self, x, oracle):
        self.x, self.oracle = x, oracle
        self.idx, self.memo = [], {}

    def __len__(self):
        return len(self.idx)

    def __getitem__(self, k):
        i = self.idx[k]
        if i not in self.memo:
            self.memo[i] = self.oracle[i]
        x = self.x[i]
        if torch.rand(1).item() < 0.5:
            x = x.flip(-1) if self.memo[i] in (0, 1) else x
        return x, self.memo[i]


oracle = Oracle(pool_y)
labeled = LabeledPool(pool_x, oracle)
labeled.idx = np.random.choice(500, START, replace=False).tolist()
unlabeled = sorted(set(range(500)) - set(labeled.idx))


# %%
class BayesCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(1, 12, 3)
        self.c2 = nn.Conv2d(12, 16, 3)
        self.drop = nn.Dropout2d(0.25)
        self.f1 = nn.Linear(16 * 6 * 6, 32)
        self.f2 = nn.Linear(32, 4)

    def forward(self, x):
        x = F.relu(self.c1(x))
        x = self.drop(F.relu(self.c2(x)))
        x = F.max_pool2d(x, 2).flatten(1)
        x = F.dropout(F.relu(self.f1(x)), 0.5)      # always on, also in eval() (training=True is the default)
        return self.f2(x)


def fresh_model():
    torch.manual_seed(77)          # every round starts from the same init AND the same shuffles
    return BayesCNN().to(dev)


# %%
def fit(model, ds, lr=2e-3):
    loader = DataLoader(ds, batch_size=16, shuffle=True)
    opt = torch.optim.AdamW(model.parameters(), lr=lr)
    scaler = torch.cuda.amp.GradScaler(enabled=dev.type == "cuda")
    best, patience, best_w = float("inf"), 0, None
    for ep in range(EPOCHS):
        model.train()
        s = 0.0
        for xb, yb in loader:
            xb, yb = xb.to(dev), yb.to(dev)
            opt.zero_grad()
            with torch.cuda.amp.autocast(enabled=dev.type == "cuda"):
                loss = F.cross_entropy(model(xb), yb, label_smoothing=0.05)
            scaler.scale(loss).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 3.0)
            scaler.step(opt)
            scaler.update()
            s += loss.item() * len(xb)
        s /= len(ds)
        if s < best - 1e-3:
            best, patience = s, 0
            best_w = copy.deepcopy(model.state_dict())
        else:
            patience += 1
            if patience == 3:
                # second chance with a smaller step before giving up
                if opt.param_groups[0]["lr"] < lr:
                    break
                opt = torch.optim.SGD(model.parameters(), lr=lr / 4, momentum=0.9)
                patience = 0
    model.load_state_dict(best_w)
    return best, ep


def mc_predict(model, x, n=MC):
    """n stochastic passes. model.train() is NOT a mistake: dropout must be on."""
    model.train()
    out = torch.zeros(n, len(x), 4)
    with torch.no_grad():
        for k in range(n):
            for b in range(0, len(x), 100):
                out[k, b:b + 100] = model(x[b:b + 100].to(dev)).softmax(1).cpu()
    return out


def bald(p):
    m = p.mean(0)
    h = -(m * (m + 1e-12).log()).sum(1)
    eh = -(p * (p + 1e-12).log()).sum(2).mean(0)
    return h - eh


def input_gradient(model, x, p):
    """expected gradient length wrt. the input; second criterion"""
    x = x.to(dev).clone().requires_grad_(True)
    logp = F.log_softmax(model(x), 1)
    target = p.mean(0).to(dev)
    g, = torch.autograd.grad(-(target * logp).sum(), x)
    return g.flatten(1).norm(dim=1).cpu()


def accuracy(model):
    model.eval()
    right = 0
    ece = torch.zeros(5, 3)
    for xb, yb in DataLoader(TensorDataset(test_x, test_y), batch_size=64):
        xb, yb = xb.to(dev), yb.to(dev)
        prob = torch.stack([model(xb).softmax(1) for _ in range(4)]).mean(0)
        conf, pred = prob.max(1)
        right += (pred == yb).sum().item()
        for c, ok in zip(conf, pred == yb):
            b = min(4, int(c.item() * 5))
            ece[b] += torch.tensor([1.0, c.item(), float(ok)])
    n = ece[:, 0].clamp(min=1)
    cal = ((ece[:, 1] / n - ece[:, 2] / n).abs() * ece[:, 0]).sum() / len(test_x)
    return right / len(test_x), cal.item()


# %%
def run(strategy):
    global unlabeled
    curve = []
    prev = None
    for r in range(ROUNDS):
        model = fresh_model()
        if prev is not None and strategy == "bald-warm":
            for (n, a), b in zip(model.named_parameters(), prev.parameters()):
                a.data = 0.5 * a.data + 0.5 * b.data        # shrink and perturb
        loss, ep = fit(model, labeled)
        acc, ece = accuracy(model)
        x = pool_x[unlabeled]
        p = mc_predict(model, x)
        if strategy.startswith("bald"):
            score = bald(p) + 0.01 * input_gradient(model, x, p)
        else:
            score = torch.rand(len(x))
        print(strategy, "round", r, "labels", len(labeled), "loss", loss, "epochs", ep + 1, "acc", acc, "ece", ece,
              "top", score.max().item())
        # greedy pick, not two look-alikes in one query
        picked = []
        order = score.argsort(descending=True)
        for j in order:
            if len(picked) == QUERY:
                break
            v = x[j].flatten()
            if any(F.cosine_similarity(v, x[q].flatten(), dim=0) > 0.75 for q in picked):
                continue
            picked.append(int(j))
        chosen = [unlabeled[j] for j in picked]
        labeled.idx += chosen
        unlabeled = [i for i in unlabeled if i not in set(chosen)]
        curve.append(acc)
        prev = model
    return curve


# %%
start_idx, start_unl = list(labeled.idx), list(unlabeled)
for strategy in ["bald-warm", "random"]:
    labeled.idx, unlabeled = list(start_idx), list(start_unl)
    print(strategy, run(strategy), "oracle calls", oracle.calls)
