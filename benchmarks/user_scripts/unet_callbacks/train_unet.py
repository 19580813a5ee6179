from dataclasses import asdict, dataclass, field
import os
import random
import time
from typing import List

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

from callbacks import BottleneckStats, EarlyStopping, History, LossSpikeGuard, Printer, evaluating
from unet import UNet


@dataclass
class Config:
    seed: int = 21
    n_train: int = 96
    n_val: int = 32
    size: int = 32
    batch: int = 8
    epochs: int = 3
    lr: float = 4e-3
    width: int = 10
    class_weights: List[float] = field(default_factory=lambda: [0.4, 1.0, 1.0, 1.6])
    resume: str = ''


class Cells(Dataset):
    """circles of three kinds on noise, drawn on the fly from the index"""

    def __init__(self, n, size, offset, augment):
        self.n, self.size, self.offset, self.augment = n, size, offset, augment

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        r = np.random.RandomState(self.offset + i)
        s = self.size
        yy, xx = np.mgrid[0:s, 0:s]
        img = r.randn(s, s) * 0.3
        mask = np.zeros((s, s), dtype=np.int64)
        for _ in range(4):
            k, cy, cx, rad = r.randint(1, 4), r.randint(4, s - 4), r.randint(4, s - 4), r.randint(3, 7)
            d = np.hypot(yy - cy, xx - cx)
            inside = d < rad
            mask[inside] = k
            img[inside] += {1: 1.0, 2: -1.0, 3: np.cos(d[inside] * 1.6)}[k] if k < 3 else np.cos(d[inside] * 1.6)
        if self.augment:
            k = random.randint(0, 3)
            img, mask = np.rot90(img, k), np.rot90(mask, k)
            if random.random() > 0.5:
                img, mask = img[:, ::-1], mask[:, ::-1]
        return torch.tensor(img.copy()).unsqueeze(0), torch.tensor(mask.copy())


def dice_per_class(pred, mask, n):
    out = []
    for c in range(n):
        p, m = (pred == c), (mask == c)
        inter = (p & m).sum().item()
        out.append((2 * inter + 1e-6) / (p.sum().item() + m.sum().item() + 1e-6))
    return out


def soft_dice(logits, mask):
    p = F.softmax(logits, 1)
    t = F.one_hot(mask, logits.size(1)).permute(0, 3, 1, 2).float()
    inter = (p * t).sum((2, 3))
    return 1 - ((2 * inter + 1e-5) / (p.sum((2, 3)) + t.sum((2, 3)) + 1e-5)).mean()


class Learner:
    def __init__(self, cfg, callbacks):
        self.cfg, self.cbs = cfg, callbacks
        self.device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
        self.net = UNet(1, 4, cfg.width).to(self.device)
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=cfg.lr, weight_decay=1e-4)
        self.step, self.epoch, self.stop, self.extra = 0, 0, False, 0.0
        self.train_dl = DataLoader(Cells(cfg.n_train, cfg.size, 0, True), cfg.batch, shuffle=True)
        self.val_dl = DataLoader(Cells(cfg.n_val, cfg.size, 10 ** 6, False), cfg.batch)
        self.sched = torch.optim.lr_scheduler.OneCycleLR(self.opt, cfg.lr, epochs=cfg.epochs, steps_per_epoch=len(self.train_dl))
        if cfg.resume and os.path.exists(cfg.resume):
            ck = torch.load(cfg.resume, map_location='cpu')
            self.net.load_state_dict(ck['net'])
            self.opt.load_state_dict(ck['opt'])
            self.epoch = ck['epoch'] + 1

    def call(self, hook, *args):
        for cb in self.cbs:
            getattr(cb, hook)(self, *args)

    def loss_fn(self, logits, mask):
        w = torch.tensor(self.cfg.class_weights).to(self.device)
        return F.cross_entropy(logits, mask, weight=w) + soft_dice(logits, mask)

    def train_one_epoch(self):
        total = 0.0
        for img, mask in self.train_dl:
            img = img.float().to(self.device)
            mask = mask.to(self.device)
            assert img.dtype == torch.float32 and mask.dtype == torch.int64
            logits = self.net(img)
            assert logits.dtype == torch.float32, 'dice needs full precision'
            loss = self.loss_fn(logits, mask)
            self.call('on_loss', loss)
            (loss + self.extra).backward()
            self.opt.step()
            self.opt.zero_grad()
            self.sched.step()
            l = loss.item()
            self.call('on_batch_end', l)
            total += l * img.size(0)
            self.step += 1
        return total / len(self.train_dl.dataset)

    def validate(self):
        losses, dices = [], []
        with evaluating(self.net):
            for img, mask in self.val_dl:
                img, mask = img.float().to(self.device), mask.to(self.device)
                logits = self.net(img)
                losses.append(self.loss_fn(logits, mask).item())
                dices.append(dice_per_class(logits.argmax(1), mask, 4))
        return float(np.mean(losses)), np.mean(dices, 0)

    def fit(self):
        self.call('on_fit_begin')
        for self.epoch in range(self.epoch, self.cfg.epochs):
            t0 = time.time()
            self.net.train()
            tr = self.train_one_epoch()
            va, dice = self.validate()
            logs = {'epoch': self.epoch, 'train': tr, 'val': va, 'dice': float(dice[1:].mean()), 'lr': self.opt.param_groups[0]['lr']}
            self.call('on_epoch_end', logs)
            print('  dice per class', ['%.5f' % d for d in dice], '%.1fs' % (time.time() - t0))
            if self.stop:
                break
        self.call('on_fit_end')


def seed_all(s):
    random.seed(s)
    np.random.seed(s)
    torch.manual_seed(s)


if __name__ == '__main__':
    cfg = Config()
    print(asdict(cfg))
    seed_all(cfg.seed)
    guard = LossSpikeGuard()
    learner = Learner(cfg, [BottleneckStats(1e-3), guard, Printer(), History('history.json'), EarlyStopping('dice', 2)])
    learner.fit()
    print('spikes', guard.hits)
