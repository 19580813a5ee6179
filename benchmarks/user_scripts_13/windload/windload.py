#!/usr/bin/env python
# coding: utf-8

# # Wind farm output, 24 h ahead -- transformer baseline [train]
# fork of my "LSTM starter", now with attention pooling + quantiles
# LB 0.1478 (v9), 0.1461 (v11, this one)

# In[1]:

import gc
import math
import os
import random
import sys
import time
import warnings
from datetime import datetime, timedelta

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.cuda.amp import GradScaler, autocast
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, Dataset
from tqdm.auto import tqdm

warnings.filterwarnings('ignore')


# In[2]:

class CFG:
    debug = '--debug' in sys.argv
    apex = torch.cuda.is_available()   # amp
    seed = 2021
    n_farms = 120
    n_hours = 2 * 365 * 24
    stride = 6
    past = 168
    ahead = 24
    d_model = 256
    n_head = 8
    n_layer = 4
    d_ff = 1024
    dropout = 0.1
    quantiles = [0.1, 0.5, 0.9]
    batch_size = 256
    valid_batch_size = 512
    num_workers = 2
    epochs = 8
    max_lr = 5e-4
    weight_decay = 0.01
    max_grad_norm = 1.0
    gradient_accumulation_steps = 1
    print_freq = 100
    out = './'


if CFG.debug:
    CFG.n_farms, CFG.n_hours, CFG.stride = 3, 1100, 7
    CFG.past, CFG.ahead = 24, 6
    CFG.d_model, CFG.n_head, CFG.n_layer, CFG.d_ff = 16, 2, 1, 32
    CFG.batch_size, CFG.valid_batch_size, CFG.num_workers = 32, 64, 0
    CFG.epochs, CFG.max_lr, CFG.print_freq = 4, 1e-2, 5
    CFG.out = '/tmp/'

START = datetime(2019, 1, 1)
device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')


def seed_everything(seed):
    random.seed(seed)
    os.environ['PYTHONHASHSEED'] = str(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)
    torch.backends.cudnn.deterministic = True


# In[3]:

def make_farms(n_farms, n_hours, seed):
    """AR(2) weather fronts + sea breeze, through a power curve (the real csv is behind the rules page)"""
    rng = np.random.RandomState(seed)
    hours = np.arange(n_hours)
    fronts = np.zeros((4, n_hours))
    noise = rng.randn(4, n_hours)
    for t in range(2, n_hours):
        fronts[:, t] = 1.6 * fronts[:, t - 1] - 0.62 * fronts[:, t - 2] + 0.35 * noise[:, t]
    out = np.zeros((n_farms, n_hours), dtype=np.float32)
    for k in range(n_farms):
        w = rng.dirichlet(np.ones(4))
        lag = rng.randint(0, 6)
        breeze = 1.5 * np.sin(2 * np.pi * (hours - rng.uniform(12, 16)) / 24)
        season = 1.2 * np.cos(2 * np.pi * hours / 8766)
        speed = 8 + np.roll(w @ fronts, lag) * 1.5 + breeze + season + 0.4 * rng.randn(n_hours)
        out[k] = np.clip((speed - 3) / 10, 0, 1) ** 2
    return out


def calendar(hour):
    dt = START + timedelta(hours=int(hour))
    day = dt.timetuple().tm_yday
    return [math.sin(2 * math.pi * dt.hour / 24), math.cos(2 * math.pi * dt.hour / 24),
            math.sin(2 * math.pi * day / 365.25), math.cos(2 * math.pi * day / 365.25),
            dt.weekday() / 6 - 0.5]


class WindowDataset(Dataset):
    def __init__(self, values, lo, hi, stride):
        self.values = values
        self.index = [(k, t) for k in range(len(values)) for t in range(lo + CFG.past, hi - CFG.ahead + 1, stride)]

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        k, t = self.index[i]
        past = self.values[k, t - CFG.past:t]
        future = self.values[k, t:t + CFG.ahead]
        mu, sd = past.mean(), past.std() + 0.05
        cal = np.array([calendar(h) for h in range(t - CFG.past, t + CFG.ahead)], dtype=np.float32)
        diff = np.diff(past, prepend=past[0])
        x = np.stack([(past - mu) / sd, diff / sd], 1)
        x = np.concatenate([x, cal[:CFG.past]], 1)
        return {
            'x': torch.tensor(x, dtype=torch.float),
            'cal': torch.tensor(cal[CFG.past:], dtype=torch.float),
            'farm': torch.tensor(k, dtype=torch.long),
            'scale': torch.tensor([mu, sd], dtype=torch.float),
            'y': torch.tensor(future, dtype=torch.float),
        }


# In[4]:

class SelfAttention(nn.Module):
    def __init__(self, d, h, p):
        super().__init__()
        self.h = h
        self.q = nn.Linear(d, d)
        self.k = nn.Linear(d, d)
        self.v = nn.Linear(d, d)
        self.o = nn.Linear(d, d)
        self.drop = nn.Dropout(p)

    def forward(self, x):
        B, T, D = x.shape
        q = self.q(x).view(B, T, self.h, -1).transpose(1, 2)
        k = self.k(x).view(B, T, self.h, -1).transpose(1, 2)
        v = self.v(x).view(B, T, self.h, -1).transpose(1, 2)
        att = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(D // self.h)
        att = self.drop(F.softmax(att, dim=-1))
        return self.o(torch.matmul(att, v).transpose(1, 2).reshape(B, T, D))


class Layer(nn.Module):
    def __init__(self, d, h, ff, p):
        super().__init__()
        self.att = SelfAttention(d, h, p)
        self.ff = nn.Sequential(nn.Linear(d, ff), nn.GELU(), nn.Dropout(p), nn.Linear(ff, d))
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.drop = nn.Dropout(p)

    def forward(self, x):
        x = x + self.drop(self.att(self.n1(x)))
        return x + self.drop(self.ff(self.n2(x)))


class WindModel(nn.Module):
    def __init__(self, n_farms, n_feat=7, n_cal=5):
        super().__init__()
        d = CFG.d_model
        self.inp = nn.Linear(n_feat, d)
        self.farm = nn.Embedding(n_farms, d)
        self.layers = nn.ModuleList([Layer(d, CFG.n_head, CFG.d_ff, CFG.dropout) for _ in range(CFG.n_layer)])
        self.norm = nn.LayerNorm(d)
        self.query = nn.Linear(n_cal, d)
        self.step = nn.Parameter(torch.randn(CFG.ahead, d) * 0.02)
        self.head = nn.Sequential(nn.Linear(2 * d, d), nn.GELU(), nn.Linear(d, len(CFG.quantiles)))

    def positions(self, T, d):
        pe = torch.zeros(T, d)
        pos = torch.arange(T).float().unsqueeze(1)
        div = torch.exp(torch.arange(0, d, 2).float() * (-math.log(10000.0) / d))
        pe[:, 0::2] = torch.sin(pos * div)
        pe[:, 1::2] = torch.cos(pos * div)
        return pe

    def forward(self, x, cal, farm, scale):
        h = self.inp(x) + self.farm(farm).unsqueeze(1)
        h = h + self.positions(h.size(1), h.size(2)).to(device)
        for layer in self.layers:
            h = layer(h)
        h = self.norm(h)
        # one query per future hour; the weights are needed for the plots
        q = self.query(cal) + self.step
        w = torch.softmax(q @ h.transpose(1, 2) / math.sqrt(h.size(-1)), -1)
        z = torch.cat([w @ h, q], -1)
        return self.head(z) * scale[:, 1, None, None] + scale[:, 0, None, None], w


class PinballLoss(nn.Module):
    def __init__(self, quantiles):
        super().__init__()
        self.quantiles = quantiles

    def forward(self, pred, y):
        err = y.unsqueeze(-1) - pred.float()
        losses = []
        for i, q in enumerate(self.quantiles):
            e = err[..., i]
            losses.append(torch.max(q * e, (q - 1) * e))
        return torch.stack(losses).mean()


# In[5]:

class AverageMeter(object):
    def __init__(self):
        self.val = self.avg = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count


def to_device(batch):
    return {k: v.to(device) for k, v in batch.items()}


def train_fn(loader, model, criterion, optimizer, scheduler, scaler, epoch):
    losses = AverageMeter()
    model.train()
    bar = tqdm(loader, total=len(loader), disable=CFG.debug)
    for step, batch in enumerate(bar):
        batch = to_device(batch)
        with autocast(enabled=CFG.apex):
            pred, _ = model(batch['x'], batch['cal'], batch['farm'], batch['scale'])
            loss = criterion(pred, batch['y'])
        if CFG.gradient_accumulation_steps > 1:
            loss = loss / CFG.gradient_accumulation_steps
        losses.update(loss.item(), batch['y'].size(0))
        scaler.scale(loss).backward()
        if (step + 1) % CFG.gradient_accumulation_steps == 0:
            scaler.unscale_(optimizer)
            grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CFG.max_grad_norm)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            scheduler.step()
        bar.set_postfix(loss=losses.avg, grad=float(grad_norm), lr=scheduler.get_last_lr()[0])
        if step % CFG.print_freq == 0 or step == len(loader) - 1:
            print(f'Epoch: [{epoch + 1}][{step}/{len(loader)}] Loss: {losses.val:.4f}({losses.avg:.4f}) '
                  f'Grad: {grad_norm:.4f} LR: {scheduler.get_last_lr()[0]:.6f}')
    return losses.avg


def valid_fn(loader, model, criterion):
    losses = AverageMeter()
    model.eval()
    preds, trues = [], []
    weights = None
    for step, batch in enumerate(loader):
        batch = to_device(batch)
        with torch.no_grad():
            pred, w = model(batch['x'], batch['cal'], batch['farm'], batch['scale'])
        losses.update(criterion(pred, batch['y']).item(), batch['y'].size(0))
        preds.append(pred.cpu().numpy())
        trues.append(batch['y'].cpu().numpy())
        weights = w.mean(0).cpu().numpy() if weights is None else weights
    return losses.avg, np.concatenate(preds), np.concatenate(trues), weights


def get_scores(preds, trues):
    mid = np.clip(preds[..., 1], 0, 1)
    mae = np.abs(mid - trues).mean()
    inside = ((trues >= preds[..., 0]) & (trues <= preds[..., 2])).mean()
    by_hour = np.abs(mid - trues).mean(0)
    return mae, inside, by_hour


# In[6]:

def main():
    seed_everything(CFG.seed)
    values = make_farms(CFG.n_farms, CFG.n_hours, CFG.seed)
    split = int(CFG.n_hours * 0.9)
    train_ds = WindowDataset(values, 0, split, CFG.stride)
    valid_ds = WindowDataset(values, split - CFG.past, CFG.n_hours, CFG.ahead)
    train_loader = DataLoader(train_ds, batch_size=CFG.batch_size, shuffle=True,
                              num_workers=CFG.num_workers, pin_memory=True, drop_last=True)
    valid_loader = DataLoader(valid_ds, batch_size=CFG.valid_batch_size, shuffle=False,
                              num_workers=CFG.num_workers, pin_memory=True, drop_last=False)
    print(f'train {len(train_ds)} windows, valid {len(valid_ds)}')

    model = WindModel(CFG.n_farms)
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=CFG.max_lr, weight_decay=CFG.weight_decay)
    steps = len(train_loader) // CFG.gradient_accumulation_steps * CFG.epochs
    scheduler = OneCycleLR(optimizer, max_lr=CFG.max_lr, total_steps=steps, pct_start=0.1)
    scaler = GradScaler(enabled=CFG.apex)
    criterion = PinballLoss(CFG.quantiles)

    best = np.inf
    for epoch in range(CFG.epochs):
        start = time.time()
        avg_loss = train_fn(train_loader, model, criterion, optimizer, scheduler, scaler, epoch)
        val_loss, preds, trues, weights = valid_fn(valid_loader, model, criterion)
        mae, inside, by_hour = get_scores(preds, trues)
        print(f'Epoch {epoch + 1} - avg_train_loss: {avg_loss:.4f}  avg_val_loss: {val_loss:.4f}  '
              f'MAE: {mae:.4f}  in 80%: {inside:.3f}  time: {time.time() - start:.0f}s')
        if val_loss < best:
            best = val_loss
            print(f'Epoch {epoch + 1} - Save Best Loss: {best:.4f} Model')
            torch.save({'model': model.state_dict(), 'preds': preds}, CFG.out + 'windload_best.pth')
            np.save(CFG.out + 'attention.npy', weights)
        torch.cuda.empty_cache()
        gc.collect()
    print('MAE by hour:', ' '.join(f'{m:.3f}' for m in by_hour))


if __name__ == '__main__':
    main()
