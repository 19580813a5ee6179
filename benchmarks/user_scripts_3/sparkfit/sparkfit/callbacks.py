import math
import torch


class StopTraining(Exception):
    """Raised by a callback to leave `fit` cleanly."""

class SkipBatch(Exception):
    """Raised by a callback to skip the rest of the current batch."""


class Callback:
    order = 0
    learner = None
    def __getattr__(self, name):
        if name.startswith('__') or self.__dict__.get('learner') is None: raise AttributeError(name)
        return getattr(self.__dict__['learner'], name)


class Progress(Callback):
    order = 90
    def __init__(self, every=10): self.every = every
    def after_batch(self):
        if self.training and self.step % self.every == 0:
            print(f'e{self.epoch} s{self.step:<4d} loss={self.loss.item():.4f} lr={self.opt.param_groups[0]["lr"]:.5f}')
    def after_epoch(self):
        row = '  '.join(f'{k}={v:.4f}' for k, v in self.log.items())
        print(f'-- epoch {self.epoch}: {row}')


class History(Callback):
    def before_fit(self): self.learner.history = []
    def after_epoch(self): self.history.append(dict(self.log))


class LRScheduler(Callback):
    """Cosine from lr to 0 with warmup, one step per batch."""
    order = 10
    def __init__(self, warmup=0.1): self.warmup = warmup
    def before_fit(self):
        self.base = [g['lr'] for g in self.opt.param_groups]
        self.total = self.epochs * len(self.train_dl)
        self.i = 0
    def before_batch(self):
        if not self.training: return
        p = self.i / self.total
        k = p / self.warmup if p < self.warmup else 0.5 * (1 + math.cos(math.pi * (p - self.warmup) / (1 - self.warmup)))
        for g, b in zip(self.opt.param_groups, self.base): g['lr'] = b * max(k, 1e-3)
        self.i += 1


class EarlyStop(Callback):
    order = 50
    def __init__(self, key='valid_loss', patience=2): self.key, self.patience = key, patience
    def before_fit(self): self.best, self.bad = float('inf'), 0
    def after_epoch(self):
        v = self.log[self.key]
        if v < self.best - 1e-4: self.best, self.bad = v, 0
        else: self.bad += 1
        if self.bad > self.patience: raise StopTraining()


class SkipSpikes(Callback):
    """Drop batches whose loss is far above the running mean (label noise)."""
    order = 20
    def __init__(self, factor=1.6): self.factor, self.mean, self.skipped = factor, None, 0
    def after_loss(self):
        if not self.training: return
        v = self.loss.item()
        if self.mean is not None and v > self.factor * self.mean:
            self.skipped += 1
            raise SkipBatch()
        self.mean = v if self.mean is None else 0.95 * self.mean + 0.05 * v


class GradStats(Callback):
    """Forward hooks: mean/std of the activations; grad norm per layer."""
    order = 60
    def __init__(self, every=5): self.every = every
    def before_fit(self):
        self.stats, self.handles = {}, []
        for name, m in self.model.named_modules():
            if not list(m.children()):
                self.handles.append(m.register_forward_hook(self.hook(name)))
    def hook(self, name):
        def fn(mod, inp, out):
            if mod.training:
                self.stats.setdefault(name, []).append((out.mean().item(), out.std().item()))
        return fn
    def after_backward(self):
        self.gnorm = sum(p.grad.norm().item() ** 2 for p in self.model.parameters() if p.grad is not None) ** 0.5
    def after_epoch(self):
        self.log['gnorm'] = self.gnorm
        worst = max(self.stats, key=lambda k: self.stats[k][-1][1])
        print(f'   widest activation: {worst} std={self.stats[worst][-1][1]:.3f} ({len(self.stats[worst])} calls)')
    def after_fit(self):
        for h in self.handles: h.remove()


class Checkpoint(Callback):
    order = 80
    def __init__(self, path, key='valid_loss'): self.path, self.key, self.best = path, key, float('inf')
    def after_epoch(self):
        if self.log[self.key] < self.best:
            self.best = self.log[self.key]
            torch.save(self.model.state_dict(), self.path)
