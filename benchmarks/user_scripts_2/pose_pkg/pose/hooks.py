import copy

import torch


class Hook:
    every = 1

    def before_epoch(self, eng): ...
    def after_backward(self, eng): ...
    def after_step(self, eng): ...
    def after_epoch(self, eng): ...


class Reseed(Hook):
    def __init__(self, seeder):
        self.seeder = seeder

    def before_epoch(self, eng):
        self.seeder.epoch = eng.epoch
        torch.manual_seed(eng.cfg.SEED + eng.epoch)


class Warmup(Hook):
    def before_epoch(self, eng):
        if eng.epoch in eng.cfg.OPTIM.STEPS:
            eng.lr *= .1

    def after_backward(self, eng):
        f = min(1, (eng.it + 1) / eng.cfg.OPTIM.WARMUP)
        for g in eng.opt.param_groups:
            g['lr'] = eng.lr * f


class Clip(Hook):
    """clips by the running median of the norms"""

    def __init__(self, limit):
        self.limit, self.seen = limit, []

    def after_backward(self, eng):
        n = torch.nn.utils.clip_grad_norm_(eng.model.parameters(), self.limit)
        self.seen.append(n.item())
        if len(self.seen) > 10:
            self.limit = 2 * sorted(self.seen[-10:])[5]


class Ema(Hook):
    def __init__(self, model, decay):
        self.decay = decay
        self.model = copy.deepcopy(model).eval()

    def after_step(self, eng):
        src = eng.model.state_dict()
        for k, v in self.model.state_dict().items():
            if v.dtype.is_floating_point:
                v.copy_(self.decay * v + (1 - self.decay) * src[k].detach())
            else:
                v.copy_(src[k])

    def after_epoch(self, eng):
        eng.metrics['ema'] = eng.evaluate(self.model)


class Log(Hook):
    every = 5

    def after_step(self, eng):
        if eng.it % self.every == 0:
            print(f'[{eng.epoch}:{eng.it}] loss {eng.loss.item()!r} stacks {eng.crit.last} lr {eng.opt.param_groups[0]["lr"]!r}')


class Collapse(Hook):
    """if the last stack is worse than the first five times in a row its weight goes up"""
    bad = 0

    def after_step(self, eng):
        a, b = (v / w for v, w in zip(eng.crit.last, eng.crit.sw))
        self.bad = self.bad + 1 if b > a else 0
        if self.bad == 5:
            eng.crit.sw[1] *= 1.1
            self.bad = 0
