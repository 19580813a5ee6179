class ScheduledOptim(object):
    """linear warmup, inverse sqrt decay"""
    def __init__(self, optimizer, init_lr, warmup):
        self.optimizer = optimizer
        self.init_lr = init_lr
        self.warmup = warmup
        self.n = 0
        self.lr = 0.

    def zero_grad(self):
        for group in self.optimizer.param_groups:
            for p in group['params']:
                if p.grad is not None:
                    p.grad.detach_()
                    p.grad.zero_()

    def step(self):
        self.n += 1
        self.lr = self.init_lr * min(self.n / self.warmup, (self.warmup / self.n) ** 0.5)
        for g in self.optimizer.param_groups:
            g['lr'] = self.lr
        self.optimizer.step()


def clip_gradient(model, clip):
    """Computes a gradient clipping coefficient based on gradient norm."""
    totalnorm = 0
    for p in model.parameters():
        modulenorm = p.grad.data.norm()
        totalnorm += modulenorm.item() ** 2
    totalnorm = totalnorm ** 0.5
    coef = min(1., clip / (totalnorm + 1e-6))
    for p in model.parameters():
        p.grad.mul_(coef)
    return totalnorm
