import math


class CosineWithWarmup:
    """called once per optimizer step; keeps the base lr of each group in the group"""

    def __init__(self, opt, lr, min_lr, warmup, steps):
        self.opt, self.lr, self.min_lr, self.warmup, self.steps = opt, lr, min_lr, warmup, steps
        for g in opt.param_groups:
            g.setdefault('mult', 1.0)

    def __call__(self, step):
        if step < self.warmup:
            lr = self.lr * (step + 1) / self.warmup
        else:
            t = (step - self.warmup) / max(1, self.steps - self.warmup)
            lr = self.min_lr + .5 * (self.lr - self.min_lr) * (1 + math.cos(math.pi * min(1, t)))
        for g in self.opt.param_groups:
            g['lr'] = lr * g['mult']
        return lr
