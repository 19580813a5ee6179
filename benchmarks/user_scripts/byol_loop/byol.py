import copy
import math
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.parametrizations import spectral_norm
from torch.utils.data import DataLoader, Dataset

from engine import Loop, Module


class TwoViews(Dataset):
    """glyph-like 3x24x24 images; two random views from torch's, numpy's and python's generator"""

    def __init__(self, n, seed, train=True):
        r = np.random.RandomState(seed)
        self.y = r.randint(0, 5, n)
        base = np.random.RandomState(0).rand(5, 6, 6)
        img = np.kron(base[self.y], np.ones((1, 4, 4)))[:, None].repeat(3, 1) + 0.7 * r.randn(n, 3, 24, 24)
        self.img = torch.from_numpy((img.clip(0, 1) * 255).astype(np.uint8))
        self.train = train

    def __len__(self):
        return len(self.img)

    def view(self, x):
        dy, dx = torch.randint(-3, 4, (2,)).tolist()
        x = torch.roll(x, (dy, dx), (1, 2))
        if random.random() < 0.3:
            x = x.mean(0, keepdim=True).expand(3, -1, -1).clone()
        x *= float(np.random.uniform(0.7, 1.2))      # in place: x is a fresh tensor here
        return x + 0.05 * torch.randn_like(x)

    def __getitem__(self, i):
        x = self.img[i].float().div_(255)
        if not self.train:
            return x, int(self.y[i])
        return self.view(x), self.view(x), int(self.y[i])


def encoder(w=16):
    return nn.Sequential(
        nn.Conv2d(3, w, 3, 2, 1), nn.BatchNorm2d(w), nn.ReLU(),
        nn.Conv2d(w, 2 * w, 3, 2, 1), nn.BatchNorm2d(2 * w), nn.ReLU(),
        nn.Conv2d(2 * w, 4 * w, 3, 2, 1), nn.BatchNorm2d(4 * w), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten())


def head(i, h, o):
    return nn.Sequential(spectral_norm(nn.Linear(i, h)), nn.BatchNorm1d(h), nn.ReLU(), nn.Linear(h, o))


class BYOL(Module):
    def __init__(self, dim=32, queue=128, tau=0.9, t=0.2, steps=100):
        super().__init__()
        self.student = nn.Sequential(encoder(), head(64, 64, dim))
        self.pred = head(dim, 64, dim)
        self.teacher = copy.deepcopy(self.student)
        for p in self.teacher.parameters():
            p.requires_grad = False
        self.tau0, self.tau, self.t, self.steps = tau, tau, t, steps
        self.register_buffer('queue', F.normalize(torch.randn(queue, dim), dim=1))
        self.register_buffer('ptr', torch.zeros(1, dtype=torch.long))
        self.collapse = 0

    @torch.no_grad()
    def enqueue(self, z):
        p, n = int(self.ptr), z.size(0)
        end = min(p + n, self.queue.size(0))
        self.queue[p:end] = z[:end - p]
        if end - p < n:
            self.queue[:n - (end - p)] = z[end - p:]
        self.ptr[0] = (p + n) % self.queue.size(0)

    def training_step(self, batch, i):
        a, b, y = batch
        loss = 0.0
        zs = []
        for u, v in ((a, b), (b, a)):
            p = F.normalize(self.pred(self.student(u)), dim=1)
            with torch.no_grad():
                z = F.normalize(self.teacher(v), dim=1)
            zs.append(z)
            pos = (p * z).sum(1, keepdim=True)
            neg = p @ self.queue.clone().t()
            logits = torch.cat([pos, neg], 1) / self.t
            loss = loss + F.cross_entropy(logits, torch.zeros(p.size(0), dtype=torch.long).to(p.device))
        self.enqueue(zs[0])
        std = zs[0].std(0).mean()
        self.log('loss', loss)
        self.log('std', std)
        self.log('pos', pos.mean())
        self.log('tau', self.tau)
        # collapsed? then let the teacher move faster
        if std.item() < 0.02:
            self.collapse += 1
            self.tau = 0.5
        return {'loss': loss, 'z': zs[0]}

    def on_train_batch_end(self, out, i):
        s = self.trainer.global_step
        self.tau = max(self.tau, 1 - (1 - self.tau0) * (math.cos(math.pi * min(1, s / self.steps)) + 1) / 2)
        for ps, pt in zip(self.student.parameters(), self.teacher.parameters()):
            pt.data = pt.data * self.tau + ps.data * (1 - self.tau)

    def validation_epoch(self, loader):
        feats, ys = [], []
        for x, y in loader:
            f = self.student[0](x.to(self.device))
            feats.append(F.normalize(f, dim=1).cpu().detach().numpy())
            ys.append(y.numpy())
        f, y = np.concatenate(feats), np.concatenate(ys)
        sim = f @ f.T
        np.fill_diagonal(sim, -2)
        nn1 = y[sim.argmax(1)]
        return {'knn': float((nn1 == y).mean())}

    def configure_optimizers(self):
        opt = torch.optim.SGD([p for p in self.parameters() if p.requires_grad], lr=0.05, momentum=0.9, weight_decay=1e-4)
        return opt, torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 5) * 0.99 ** s)


def seed_worker(worker_id):
    # brightness is the same in every epoch, the rest is not
    np.random.seed(42 + worker_id)


if __name__ == '__main__':
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    train = DataLoader(TwoViews(300, 1), batch_size=32, shuffle=True, num_workers=2, worker_init_fn=seed_worker)
    val = DataLoader(TwoViews(100, 2, False), batch_size=50)
    model = BYOL(steps=40)
    loop = Loop(max_epochs=4, accumulate=2, watch='knn')
    print('best knn %.5f' % loop.fit(model, train, val), 'collapsed', model.collapse, 'queue %.6f' % model.queue.sum().item(), 'ptr', int(model.ptr))
