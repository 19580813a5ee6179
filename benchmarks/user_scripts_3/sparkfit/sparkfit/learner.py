import torch
from .callbacks import SkipBatch, StopTraining


def to_device(b, device):
    if isinstance(b, (list, tuple)): return type(b)(to_device(o, device) for o in b)
    if isinstance(b, dict): return {k: to_device(v, device) for k, v in b.items()}
    return b.to(device) if torch.is_tensor(b) else b


class Learner:
    """A training loop with events. Everything that is not the loop is a callback.

    events: before_fit before_epoch before_batch after_pred after_loss after_backward
            after_step after_batch after_epoch after_fit
    """
    def __init__(self, model, train_dl, valid_dl, loss_fn, opt_fn, metrics=(), cbs=(), device=None):
        self.device = device or ('cuda' if torch.cuda.is_available() else 'cpu')
        self.model = model.to(self.device)
        self.train_dl, self.valid_dl, self.loss_fn = train_dl, valid_dl, loss_fn
        self.opt = opt_fn(self.model.parameters())
        self.metrics = list(metrics)
        self.cbs = sorted(cbs, key=lambda c: c.order)
        for cb in self.cbs: cb.learner = self

    def __call__(self, event):
        for cb in self.cbs:
            f = getattr(type(cb), event, None)
            if f is not None: f(cb)

    def one_batch(self, batch):
        self.xb, self.yb = to_device(batch, self.device)
        try:
            self('before_batch')
            self.pred = self.model(self.xb)
            self('after_pred')
            self.loss = self.loss_fn(self.pred, self.yb)
            self('after_loss')
            if self.training:
                self.loss.backward()
                self('after_backward')
                self.opt.step()
                self('after_step')
                self.opt.zero_grad()
            for m in self.metrics: m.update(self)
        except SkipBatch:
            self.opt.zero_grad()
        self('after_batch')

    def one_epoch(self, training):
        self.training = training
        self.model.train(training)
        for m in self.metrics: m.reset()
        with torch.set_grad_enabled(training):
            for self.step, batch in enumerate(self.train_dl if training else self.valid_dl):
                self.one_batch(batch)
        prefix = 'train_' if training else 'valid_'
        for m in self.metrics: self.log[prefix + m.name] = m.value()

    def fit(self, epochs):
        self.epochs = epochs
        self('before_fit')
        try:
            for self.epoch in range(epochs):
                self.log = {}
                self('before_epoch')
                self.one_epoch(True)
                self.one_epoch(False)
                self('after_epoch')
        except StopTraining:
            print(f'stopped after epoch {self.epoch}')
        self('after_fit')
        return self
