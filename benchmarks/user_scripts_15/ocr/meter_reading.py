#!/usr/bin/env python
# coding: utf-8
# # Serial numbers from meter plates (CRNN + CTC)
# exported from meter_reading.ipynb

# In[1]:
import random, math, sys, copy
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader, Sampler
from glyphs import CHARS, render

# In[2]:
class CFG:
    n_train = 60000
    n_val = 4000
    height = 32
    min_len = 4
    max_len = 22
    digits = 0          # 1: the old plates, numbers only
    batch = 32
    accum = 4
    epochs = 25
    max_lr = 1e-3
    width = 64          # channels of the first convolution
    hidden = 256
    ema = 0.999
    workers = 4
    n_print = 100
    seed = 2021

# `python meter_reading.py n_train=400 batch=8` when it is not run in the notebook
for a in sys.argv[1:]:
    k, v = a.split('=')
    setattr(CFG, k, type(getattr(CFG, k))(float(v)))

random.seed(CFG.seed); np.random.seed(CFG.seed); torch.manual_seed(CFG.seed)
device = 'cuda' if torch.cuda.is_available() else 'cpu'
if device == 'cuda':
    torch.backends.cudnn.benchmark = True
BLANK = 0
if CFG.digits:
    CHARS = '0123456789'
c2i = {c: i + 1 for i, c in enumerate(CHARS)}

# In[3]:
def make_lines(n, seed):
    rng = np.random.RandomState(seed)
    lines = []
    for _ in range(n):
        t = ''.join(rng.choice(list(CHARS), rng.randint(CFG.min_len, CFG.max_len + 1)))
        lines.append((render(t, CFG.height, rng), t))
    return lines

class Plates(Dataset):
    def __init__(self, lines, train):
        self.lines, self.train = lines, train
    def __len__(self):
        return len(self.lines)
    def __getitem__(self, i):
        img, text = self.lines[i]
        x = img.astype(np.float64) / 255.
        if self.train:
            x = x * random.uniform(0.8, 1.2) + random.uniform(-0.1, 0.1)
            if random.random() < 0.3:
                # a scratch
                c = random.randint(0, x.shape[1] - 1)
                x[:, c:c + 2] = random.random()
            x = x + np.random.normal(0, 0.03, x.shape)
        x = (x - x.mean()) / (x.std() + 1e-6)
        y = torch.tensor([c2i[c] for c in text])
        return torch.FloatTensor(x).unsqueeze(0), y

def collate(batch):
    xs, ys = zip(*batch)
    w = max(x.shape[2] for x in xs)
    w = (w + 7) // 8 * 8
    X = torch.zeros(len(xs), 1, CFG.height, w)
    for i, x in enumerate(xs):
        X[i, :, :, :x.shape[2]] = x
    widths = torch.tensor([x.shape[2] for x in xs])
    return X, widths, torch.cat(ys), torch.tensor([len(y) for y in ys])

class ByWidth(Sampler):
    """batches of similar width in a new random order every epoch"""
    def __init__(self, widths, batch, seed=0):
        self.widths, self.batch, self.epoch, self.seed = np.array(widths), batch, 0, seed
    def __len__(self):
        return len(self.widths) // self.batch
    def __iter__(self):
        rng = np.random.RandomState(self.seed + self.epoch)
        self.epoch += 1
        order = np.argsort(self.widths + rng.uniform(-8, 8, len(self.widths)), kind='stable')
        batches = [order[i * self.batch:(i + 1) * self.batch].tolist() for i in range(len(self))]
        rng.shuffle(batches)
        return iter(batches)

train_lines, val_lines = make_lines(CFG.n_train, 1), make_lines(CFG.n_val, 2)
train_dl = DataLoader(Plates(train_lines, True),
                      batch_sampler=ByWidth([l[0].shape[1] for l in train_lines], CFG.batch),
                      collate_fn=collate, num_workers=CFG.workers)
val_dl = DataLoader(Plates(val_lines, False), batch_size=CFG.batch, collate_fn=collate, num_workers=CFG.workers)

# In[4]:
def cbr(i, o, pool=None):
    l = [nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(True)]
    if pool: l.append(nn.MaxPool2d(pool))
    return l

class CRNN(nn.Module):
    def __init__(self, w, hidden, n_cls):
        super().__init__()
        self.cnn = nn.Sequential(*cbr(1, w, (2, 2)), *cbr(w, 2 * w, (2, 2)), *cbr(2 * w, 4 * w),
                                 *cbr(4 * w, 4 * w, (2, 1)), *cbr(4 * w, 8 * w), *cbr(8 * w, 8 * w, (2, 1)),
                                 nn.Conv2d(8 * w, 8 * w, (CFG.height // 16, 1)), nn.BatchNorm2d(8 * w), nn.ReLU(True))
        self.rnn = nn.LSTM(8 * w, hidden, 2, bidirectional=True, dropout=0.1)
        self.fc = nn.Linear(2 * hidden, n_cls)
    def forward(self, x):
        h = self.cnn(x).squeeze(2).permute(2, 0, 1)     # T, N, C
        h, _ = self.rnn(h)
        return F.log_softmax(self.fc(h).double(), dim=2)     # long plates underflowed in float32 once

model = CRNN(CFG.width, CFG.hidden, len(CHARS) + 1).to(device)
ema = copy.deepcopy(model)
print(sum(p.numel() for p in model.parameters()), 'parameters')

# In[5]:
def decode(lp, lens):
    """greedy: best class per column, repeats merged, blanks dropped"""
    out = []
    for n in range(lp.shape[1]):
        s, last = '', BLANK
        for t in range(int(lens[n])):
            k = lp[t, n].argmax().item()
            if k != last and k != BLANK:
                s += CHARS[k - 1]
            last = k
        out.append(s)
    return out

def lev(a, b):
    d = np.arange(len(b) + 1)
    for i, x in enumerate(a):
        p, d[0] = d[0], i + 1
        for j, y in enumerate(b):
            p, d[j + 1] = d[j + 1], min(d[j + 1] + 1, d[j] + 1, p + (x != y))
    return d[-1]

def to_texts(y, ylen):
    out, o = [], 0
    for n in ylen.tolist():
        out.append(''.join(CHARS[k - 1] for k in y[o:o + n].tolist()))
        o += n
    return out

def update_ema(it):
    d = min(CFG.ema, (1 + it) / (10 + it))
    msd = model.state_dict()
    for k, v in ema.state_dict().items():
        if v.dtype.is_floating_point:
            v.copy_(v * d + msd[k].detach() * (1 - d))
        else:
            v.copy_(msd[k])

def validate(m):
    m.eval()
    tot, n, err, chars, exact = 0., 0, 0, 0, 0
    with torch.no_grad():
        for X, widths, y, ylen in val_dl:
            lp = m(X.to(device))
            lens = torch.clamp(widths // 4, max=lp.shape[0])
            tot += ctc(lp, y.to(device), lens.to(device), ylen.to(device)).item() * len(ylen)
            n += len(ylen)
            for a, b in zip(decode(lp, lens), to_texts(y, ylen)):
                err += lev(a, b); chars += len(b); exact += a == b
    return tot / n, err / chars, exact / n

# In[6]:
ctc = nn.CTCLoss(blank=BLANK, zero_infinity=True)
opt = torch.optim.AdamW(model.parameters(), lr=CFG.max_lr / 25, weight_decay=1e-2)
steps = math.ceil(len(train_dl) / CFG.accum)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, CFG.max_lr, epochs=CFG.epochs, steps_per_epoch=steps)
it = 0
for epoch in range(CFG.epochs):
    model.train()
    losses, cers = [], []
    opt.zero_grad()
    for i, (X, widths, y, ylen) in enumerate(train_dl):
        X, y = X.to(device), y.to(device)
        lp = model(X)
        lens = torch.clamp(widths // 4, max=lp.shape[0])
        loss = ctc(lp, y, lens.to(device), ylen.to(device))
        (loss / CFG.accum).backward()
        if (i + 1) % CFG.accum == 0 or i + 1 == len(train_dl):
            nn.utils.clip_grad_norm_(model.parameters(), 5.)
            opt.step(); sched.step(); opt.zero_grad()
            it += 1
            update_ema(it)
        losses.append(loss.item())
        texts = decode(lp, lens)
        cers.append(np.mean([lev(a, b) / len(b) for a, b in zip(texts, to_texts(y, ylen))]))
        if (i + 1) % CFG.n_print == 0:
            print(f'  {epoch}:{i+1}  loss {np.mean(losses[-CFG.n_print:]):.5f}  cer {np.mean(cers[-CFG.n_print:]):.4f}  {texts[0]}')
    v, c, e = validate(model)
    ve, ce, ee = validate(ema)
    print(f'epoch {epoch}  train {np.mean(losses):.6f}  val {v:.6f} cer {c:.4f} exact {e:.4f}   ema {ve:.6f} cer {ce:.4f} exact {ee:.4f}')

# In[7]:
torch.save(ema.state_dict(), 'crnn_ema.pt')
