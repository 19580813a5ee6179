import os
import random
import time

import numpy as np
import torch


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


class AverageMeter:
    def __init__(self):
        self.reset()

    def reset(self):
        self.sum, self.n = 0.0, 0

    def update(self, v, n=1):
        self.sum += v * n
        self.n += n

    @property
    def avg(self):
        return self.sum / max(self.n, 1)


class CSIMeter:
    """Critical success index over a whole split, at several VIL thresholds."""

    def __init__(self, thresholds, device):
        self.thresholds = thresholds
        self.hits = torch.zeros(len(thresholds), device=device)
        self.misses = torch.zeros(len(thresholds), device=device)
        self.alarms = torch.zeros(len(thresholds), device=device)

    def update(self, pred, target):
        for k, thr in enumerate(self.thresholds):
            p = pred >= thr / 255.0
            t = target >= thr / 255.0
            self.hits[k] += (p & t).sum()
            self.misses[k] += (~p & t).sum()
            self.alarms[k] += (p & ~t).sum()

    def compute(self):
        csi = self.hits / (self.hits + self.misses + self.alarms + 1e-6)
        return csi.cpu().tolist()


class Timer:
    def __init__(self):
        self.t0 = time.time()

    def __call__(self):
        return time.time() - self.t0


def save_checkpoint(path, epoch, model, disc, opt_g, opt_d):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    torch.save({"epoch": epoch, "model": model.state_dict(),
                "disc": disc.state_dict(), "opt_g": opt_g.state_dict(),
                "opt_d": opt_d.state_dict()}, path)
