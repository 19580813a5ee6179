# ====================================================
# Display ads CTR - DeepFM baseline, 5 seeds blend later
# usage: python ctr.py [--key value ...]   (keys are the attributes of CFG)
# ====================================================
import gc
import math
import os
import random
import sys
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


# ====================================================
# CFG
# ====================================================
class CFG:
    data = './criteo_small.npz'
    out_dir = './out'
    n_rows = 12_000_000
    n_num = 13
    n_cat = 26
    max_vocab = 400_000
    emb_dim = 16
    hidden = (400, 400, 400)
    dropout = 0.2
    batch_size = 4096
    valid_batch_size = 8192
    num_workers = 4
    epochs = 3
    lr = 1e-3
    weight_decay = 1e-6
    max_grad_norm = 10.0
    n_fold = 10
    fold = 0
    print_freq = 200
    seed = 42


def update_cfg(argv):
    for k, v in zip(argv[::2], argv[1::2]):
        k = k.lstrip('-')
        old = getattr(CFG, k)
        if isinstance(old, tuple):
            v = tuple(int(t) for t in v.split(','))
        else:
            v = type(old)(v)
        setattr(CFG, k, v)


device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')


def seed_everything(seed):
    random.seed(seed)
    os.environ['PYTHONHASHSEED'] = str(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed(seed)


# ====================================================
# Data
# ====================================================
def make_data(path):
    rng = np.random.RandomState(CFG.seed)
    sizes = [int(max(4, CFG.max_vocab / (1.8 ** i))) for i in range(CFG.n_cat)]
    rng.shuffle(sizes)
    num = rng.lognormal(1.0, 1.5, (CFG.n_rows, CFG.n_num)).astype(np.float32)
    num[rng.rand(*num.shape) < 0.1] = -1
    cat = np.stack([np.minimum(rng.zipf(1.3, CFG.n_rows) - 1, s - 1) for s in sizes], 1).astype(np.int32)
    logit = -1.6 + 0.3 * np.tanh(np.log1p(np.maximum(num, 0)) - 1.5).sum(1)
    for j in range(CFG.n_cat):
        logit += 0.5 * rng.randn(sizes[j])[cat[:, j]]
    y = (rng.rand(CFG.n_rows) < 1 / (1 + np.exp(-logit))).astype(np.float32)
    np.savez(path, num=num, cat=cat, y=y, sizes=np.array(sizes))


class CTRDataset(Dataset):
    def __init__(self, num, cat, y):
        self.num = num
        self.cat = cat
        self.y = y

    def __len__(self):
        return len(self.y)

    def __getitem__(self, idx):
        num = self.num[idx]
        num = np.where(num < 0, 0.0, np.log1p(np.maximum(num, 0)) ** 2).astype(np.float32)
        return {
            'num': torch.tensor(num, dtype=torch.float32),
            'cat': torch.tensor(self.cat[idx], dtype=torch.long),
            'target': torch.tensor(self.y[idx], dtype=torch.float32),
        }


# ====================================================
# Model
# ====================================================
class DeepFM(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.embs = nn.ModuleList([nn.Embedding(int(s), CFG.emb_dim) for s in sizes])
        self.lins = nn.ModuleList([nn.Embedding(int(s), 1) for s in sizes])
        for e in self.embs:
            nn.init.normal_(e.weight, std=0.01)
        for e in self.lins:
            nn.init.zeros_(e.weight)
        self.num_lin = nn.Linear(CFG.n_num, 1)
        self.num_emb = nn.Parameter(torch.randn(CFG.n_num, CFG.emb_dim) * 0.01)
        layers, d = [], (len(sizes) + CFG.n_num) * CFG.emb_dim
        for h in CFG.hidden:
            layers += [nn.Linear(d, h), nn.BatchNorm1d(h), nn.ReLU(), nn.Dropout(CFG.dropout)]
            d = h
        self.mlp = nn.Sequential(*layers, nn.Linear(d, 1))

    def forward(self, num, cat):
        embs = []
        lin = self.num_lin(num)
        for i in range(len(self.embs)):
            embs.append(self.embs[i](cat[:, i]))
            lin = lin + self.lins[i](cat[:, i])
        v = torch.cat([torch.stack(embs, dim=1), num.unsqueeze(-1) * self.num_emb], dim=1)
        # 0.5 * ((sum v)^2 - sum v^2)
        fm = 0.5 * (v.sum(1).pow(2) - v.pow(2).sum(1)).sum(1, keepdim=True)
        deep = self.mlp(v.flatten(1))
        return torch.sigmoid(lin + fm + deep).squeeze(1)


# ====================================================
# Helpers
# ====================================================
class AverageMeter(object):
    def __init__(self):
        self.val, self.avg, self.sum, self.count = 0, 0, 0, 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count


def as_minutes(s):
    m = math.floor(s / 60)
    return '%dm %ds' % (m, s - m * 60)


def get_auc(y_true, y_score):
    order = np.argsort(y_score, kind='mergesort')
    y = y_true[order]
    n_pos = y.sum()
    n_neg = len(y) - n_pos
    ranks = np.arange(1, len(y) + 1)
    return float((ranks[y > 0.5].sum() - n_pos * (n_pos + 1) / 2) / max(n_pos * n_neg, 1))


def get_logloss(y_true, p):
    p = np.clip(p.astype(np.float64), 1e-7, 1 - 1e-7)
    return float(-(y_true * np.log(p) + (1 - y_true) * np.log(1 - p)).mean())


# ====================================================
# Train / valid
# ====================================================
def train_fn(loader, model, criterion, optimizer, scheduler, epoch):
    model.train()
    losses = AverageMeter()
    preds, targets = [], []
    start = time.time()
    for step, data in enumerate(loader):
        num = data['num'].to(device)
        cat = data['cat'].to(device)
        target = data['target'].to(device)
        y_preds = model(num, cat)
        loss = criterion(y_preds, target)
        losses.update(loss.item(), target.size(0))
        loss.backward()
        grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CFG.max_grad_norm)
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        preds.append(y_preds.detach().cpu().numpy())
        targets.append(target.cpu().numpy())
        if step % CFG.print_freq == 0 or step == len(loader) - 1:
            print('Epoch: [{0}][{1}/{2}] Elapsed {3} Loss: {loss.val:.4f}({loss.avg:.4f}) '
                  'Grad: {grad:.4f} LR: {lr:.6f}'
                  .format(epoch + 1, step, len(loader), as_minutes(time.time() - start),
                          loss=losses, grad=grad_norm, lr=scheduler.get_last_lr()[0]), flush=True)
    auc = get_auc(np.concatenate(targets), np.concatenate(preds))
    return losses.avg, auc


def valid_fn(loader, model):
    model.eval()
    preds, targets = [], []
    for data in loader:
        with torch.no_grad():
            y_preds = model(data['num'].to(device), data['cat'].to(device))
        preds.append(y_preds.cpu().numpy())
        targets.append(data['target'].numpy())
    return np.concatenate(preds), np.concatenate(targets)


def run_fold(fold):
    print('========== fold: %d training ==========' % fold)
    d = np.load(CFG.data)
    num, cat, y, sizes = d['num'], d['cat'], d['y'], d['sizes']
    folds = np.arange(len(y)) % CFG.n_fold
    trn, val = folds != fold, folds == fold

    train_dataset = CTRDataset(num[trn], cat[trn], y[trn])
    valid_dataset = CTRDataset(num[val], cat[val], y[val])
    train_loader = DataLoader(train_dataset, batch_size=CFG.batch_size, shuffle=True,
                              num_workers=CFG.num_workers, pin_memory=True, drop_last=True)
    valid_loader = DataLoader(valid_dataset, batch_size=CFG.valid_batch_size, shuffle=False,
                              num_workers=CFG.num_workers, pin_memory=True, drop_last=False)

    model = DeepFM(sizes)
    model.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=CFG.lr, weight_decay=CFG.weight_decay)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=CFG.lr, epochs=CFG.epochs, steps_per_epoch=len(train_loader))
    criterion = nn.BCELoss()

    best = 0.
    for epoch in range(CFG.epochs):
        start = time.time()
        avg_loss, trn_auc = train_fn(train_loader, model, criterion, optimizer, scheduler, epoch)
        val_preds, val_targets = valid_fn(valid_loader, model)
        score = get_auc(val_targets, val_preds)
        ll = get_logloss(val_targets, val_preds)
        print(f'Epoch {epoch+1} - train loss {avg_loss:.4f} auc {trn_auc:.4f} | '
              f'valid logloss {ll:.4f} auc {score:.4f}  time: {time.time() - start:.0f}s', flush=True)
        if score > best:
            best = score
            print(f'Epoch {epoch+1} - Save Best Score: {best:.4f} Model')
            os.makedirs(CFG.out_dir, exist_ok=True)
            torch.save({'model': model.state_dict(), 'preds': val_preds},
                       os.path.join(CFG.out_dir, f'deepfm_fold{fold}_best.pth'))
        gc.collect()
        torch.cuda.empty_cache()
    return best


if __name__ == '__main__':
    update_cfg(sys.argv[1:])
    seed_everything(CFG.seed)
    if not os.path.exists(CFG.data):
        make_data(CFG.data)
    best = run_fold(CFG.fold)
    print('CV: %.5f' % best)
