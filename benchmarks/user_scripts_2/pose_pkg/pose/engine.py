import torch

from .data import FLIP
from .model import soft_argmax


class Engine:
    def __init__(self, cfg, model, crit, opt, device, hooks):
        self.cfg, self.model, self.crit, self.opt, self.device = cfg, model, crit, opt, device
        self.hooks = hooks
        self.lr = cfg.OPTIM.LR
        self.it, self.epoch, self.metrics = 0, 0, {}

    def call(self, name):
        for h in self.hooks:
            getattr(h, name)(self)

    def step(self, batch):
        img = batch['image'].to(self.device)
        heat, w = batch['heat'].to(self.device), batch['weight'].to(self.device)
        self.loss = self.crit(self.model(img), heat, w)
        self.opt.zero_grad()
        self.loss.backward()
        self.call('after_backward')
        self.opt.step()
        self.it += 1
        self.call('after_step')

    def fit(self, train, val):
        for self.epoch in range(self.cfg.EPOCHS):
            self.model.train()
            self.call('before_epoch')
            total = 0.
            for batch in train:
                self.step(batch)
                total += self.loss.item() * len(batch['meta']['name'])
            self.val = val
            self.metrics = {'train': total / len(train.dataset), 'val': self.evaluate(self.model)}
            self.call('after_epoch')
            print('epoch', self.epoch, self.metrics)
        return self.metrics

    def evaluate(self, model):
        was = model.training
        model.eval()
        good = torch.zeros(len(FLIP))
        seen = torch.zeros(len(FLIP))
        worst = (0, '')
        scale = self.cfg.DATA.SIZE / self.cfg.DATA.HEAT
        for batch in self.val:
            x = batch['image'].to(self.device)
            h = model(x)[-1]
            if self.cfg.FLIP_TEST:
                h = (h + model(x.flip(3))[-1].flip(3)[:, FLIP]) / 2
            d = (soft_argmax(h).cpu() * scale - batch['pts']).norm(dim=2)
            ok = batch['weight'] > 0
            good += ((d < 3) & ok).sum(0)
            seen += ok.sum(0)
            v, k = (d * ok).max(1)[0].max(0)
            if v.item() > worst[0]:
                worst = (v.item(), batch['meta']['name'][k])
        model.train(was)
        return {'pck': (good.sum() / seen.sum()).item(), 'each': (good / seen).tolist(), 'worst': worst}
