# # Tabular NN baseline - 5 fold, embeddings + swap noise
# Fork this if you like it, and please UPVOTE :)

import os, gc, random
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader, TensorDataset

SEED = 2020
N_FOLDS = 3
EPOCHS = 4
BATCH = 256
DEVICE = torch.device('cuda' if torch.cuda.is_available() else 'cpu')


def seed_everything(seed=42):
    random.seed(seed)
    os.environ['PYTHONHASHSEED'] = str(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed(seed)
    torch.backends.cudnn.deterministic = True

seed_everything(SEED)

# ---- data: pretend we read ../input/churn/train.csv
N_TRAIN, N_TEST = 9000, 3000
CARDS = [12, 7, 31, 4]
N_NUM = 20


def fake_csv(n, rs):
    num = rs.randn(n, N_NUM).astype(np.float64)
    cat = np.stack([rs.randint(0, c, n) for c in CARDS], 1)
    w = np.linspace(-1, 1, N_NUM)
    logit = num @ w * 0.7 + (cat[:, 0] % 3 - 1) + 0.5 * (cat[:, 3] == 2) * num[:, 1]
    y = (rs.rand(n) < 1 / (1 + np.exp(-logit))).astype(np.float64)
    return num, cat, y

rs = np.random.RandomState(0)
train_num, train_cat, train_y = fake_csv(N_TRAIN, rs)
test_num, test_cat, test_y = fake_csv(N_TEST, rs)


class ChurnDataset(Dataset):
    def __init__(self, num, cat, y, noise=0.0):
        self.num, self.cat, self.y = num, cat, y
        self.noise = noise

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        num = self.num[i].copy()
        if self.noise > 0:
            # swap noise: take some columns from another random row
            j = np.random.randint(len(self.y))
            m = np.random.rand(len(num)) < self.noise
            num[m] = self.num[j][m]
        return (torch.tensor(num, dtype=torch.float32),
                torch.tensor(self.cat[i], dtype=torch.long),
                torch.tensor(self.y[i], dtype=torch.float32))


class TabNN(nn.Module):
    def __init__(self, cards, n_num, hidden=256, p=0.2):
        super().__init__()
        self.embs = nn.ModuleList([nn.Embedding(c, min(16, (c + 1) // 2)) for c in cards])
        n_emb = sum(e.embedding_dim for e in self.embs)
        self.bn0 = nn.BatchNorm1d(n_num)
        self.lin1 = nn.Linear(n_emb + n_num, hidden)
        self.bn1 = nn.BatchNorm1d(hidden)
        self.lin2 = nn.Linear(hidden, hidden // 2)
        self.bn2 = nn.BatchNorm1d(hidden // 2)
        self.out = nn.Linear(hidden // 2, 1)
        self.drop = nn.Dropout(p)

    def forward(self, num, cat):
        e = torch.cat([emb(cat[:, k]) for k, emb in enumerate(self.embs)], 1)
        x = torch.cat([self.bn0(num), self.drop(e)], 1)
        x = self.drop(self.bn1(F.relu(self.lin1(x))))
        x = self.drop(F.relu(self.bn2(self.lin2(x))))
        return torch.sigmoid(self.out(x)).squeeze(1)


def auc(y, p):
    order = np.argsort(p)
    rank = np.empty(len(p)); rank[order] = np.arange(1, len(p) + 1)
    pos = y > 0.5
    return (rank[pos].sum() - pos.sum() * (pos.sum() + 1) / 2) / (pos.sum() * (~pos).sum())


def kfold(n, k, seed):
    idx = np.random.RandomState(seed).permutation(n)
    for f in range(k):
        va = idx[f::k]
        yield np.setdiff1d(idx, va), va


def predict(model, loader):
    model.eval()
    preds = []
    for num, cat, _ in loader:
        p = model(num.to(DEVICE), cat.to(DEVICE))
        preds.append(p.detach().cpu().numpy())
    return np.concatenate(preds)


test_ds = TensorDataset(torch.tensor(test_num, dtype=torch.float32), torch.tensor(test_cat), torch.tensor(test_y))
test_loader = DataLoader(test_ds, batch_size=BATCH, shuffle=False)

oof = np.zeros(N_TRAIN)
sub = np.zeros(N_TEST)

for fold, (tr, va) in enumerate(kfold(N_TRAIN, N_FOLDS, SEED)):
    seed_everything(SEED + fold)
    train_loader = DataLoader(ChurnDataset(train_num[tr], train_cat[tr], train_y[tr], noise=0.1),
                              batch_size=BATCH, shuffle=True, drop_last=True)
    valid_loader = DataLoader(ChurnDataset(train_num[va], train_cat[va], train_y[va]), batch_size=BATCH)
    model = TabNN(CARDS, N_NUM).to(DEVICE)
    opt = torch.optim.Adam(model.parameters(), lr=2e-3, weight_decay=1e-5)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=8e-3, epochs=EPOCHS, steps_per_epoch=len(train_loader))
    criterion = nn.BCELoss()
    best, patience, best_state = 0, 0, None
    for epoch in range(EPOCHS):
        model.train()
        losses = []
        for num, cat, y in train_loader:
            num, cat, y = num.to(DEVICE), cat.to(DEVICE), y.to(DEVICE)
            opt.zero_grad()
            p = model(num, cat)
            loss = criterion(p, y * 0.98 + 0.01)   # label smoothing
            loss.backward()
            opt.step()
            sched.step()
            losses.append(loss.item())
        vp = predict(model, valid_loader)
        score = auc(train_y[va], vp)
        print(f'fold {fold} epoch {epoch} loss {np.mean(losses):.5f} val auc {score:.5f}')
        if score > best:
            best, patience = score, 0
            best_state = {k: v.clone() for k, v in model.state_dict().items()}
        else:
            patience += 1
            if patience >= 2:
                break
        torch.cuda.empty_cache(); gc.collect()
    model.load_state_dict(best_state)
    oof[va] = predict(model, valid_loader)
    sub += predict(model, test_loader) / N_FOLDS
    del model, opt
    torch.cuda.empty_cache()
    gc.collect()

print('CV  AUC: %.5f' % auc(train_y, oof))
print('LB? AUC: %.5f' % auc(test_y, sub))
np.savetxt('submission.csv', sub, fmt='%.6f')
