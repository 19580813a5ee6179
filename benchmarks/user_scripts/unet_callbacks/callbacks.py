import json
import math
from contextlib import contextmanager

import torch


class Callback:
    def __getattr__(self, name):
        # any on_xxx hook that a subclass did not define does nothing
        if name.startswith('on_'):
            return lambda *a, **k: None
        raise AttributeError(name)


class History(Callback):
    def __init__(self, path):
        self.path, self.rows = path, []

    def on_epoch_end(self, learner, logs):
        self.rows.append({k: v for k, v in logs.items()})
        with open(self.path, 'w') as f:
            json.dump(self.rows, f)


class EarlyStopping(Callback):
    def __init__(self, monitor, patience, mode='max'):
        self.monitor, self.patience, self.sign = monitor, patience, 1 if mode == 'max' else -1
        self.best, self.wait = -math.inf, 0

    def on_epoch_end(self, learner, logs):
        v = self.sign * logs[self.monitor]
        if v > self.best:
            self.best, self.wait = v, 0
            torch.save({'net': learner.net.state_dict(), 'opt': learner.opt.state_dict(), 'epoch': learner.epoch}, 'unet_best.pt')
        else:
            self.wait += 1
            learner.stop = self.wait >= self.patience


class LossSpikeGuard(Callback):
    """halve the lr when a batch loss is far above the running one"""

    def __init__(self, factor=1.12):
        self.run, self.factor, self.hits = None, factor, 0

    def on_batch_end(self, learner, loss):
        if self.run is not None and loss > self.factor * self.run:
            self.hits += 1
            for g in learner.opt.param_groups:
                g['lr'] *= 0.5
        self.run = loss if self.run is None else 0.9 * self.run + 0.1 * loss


class Printer(Callback):
    def on_batch_end(self, learner, loss):
        if learner.step % 10 == 0:
            print('    step {:3d} loss {:.6f}'.format(learner.step, loss))

    def on_epoch_end(self, learner, logs):
        print(' '.join('%s=%s' % (k, round(v, 6) if isinstance(v, float) else v) for k, v in logs.items()))


class BottleneckStats(Callback):
    """forward hook on the bottleneck; its mean activation is used as an extra penalty"""

    def __init__(self, weight):
        self.weight, self.act = weight, None

    def on_fit_begin(self, learner):
        self.handle = learner.net.bottom.register_forward_hook(self._hook)

    def _hook(self, mod, inp, out):
        self.act = out

    def on_loss(self, learner, loss):
        learner.extra = self.weight * self.act.pow(2).mean()

    def on_fit_end(self, learner):
        self.handle.remove()


@contextmanager
def evaluating(net):
    was = net.training
    net.eval()
    try:
        yield net
    finally:
        net.train(was)
