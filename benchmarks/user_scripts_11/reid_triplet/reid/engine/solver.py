import bisect

import torch


def make_optimizer(cfg, model, center):
    params = []
    for key, value in model.named_parameters():
        if not value.requires_grad:
            continue
        lr = cfg.SOLVER.BASE_LR
        weight_decay = cfg.SOLVER.WEIGHT_DECAY
        if "bias" in key:
            lr = cfg.SOLVER.BASE_LR * cfg.SOLVER.BIAS_LR_FACTOR
            weight_decay = 0.0
        params += [{"params": [value], "lr": lr, "weight_decay": weight_decay}]
    optimizer = torch.optim.Adam(params)
    optimizer_center = torch.optim.SGD(center.parameters(), lr=cfg.SOLVER.CENTER_LR)
    return optimizer, optimizer_center


class WarmupMultiStep(object):
    """per iteration"""

    def __init__(self, optimizer, milestones, gamma, warmup_iters):
        self.optimizer = optimizer
        self.milestones = milestones
        self.gamma = gamma
        self.warmup_iters = warmup_iters
        self.base = [g['lr'] for g in optimizer.param_groups]
        self.it = 0
        self.step()

    def step(self):
        f = min(1.0, 0.1 + 0.9 * self.it / max(1, self.warmup_iters))
        f *= self.gamma ** bisect.bisect_right(self.milestones, self.it)
        for g, lr in zip(self.optimizer.param_groups, self.base):
            g['lr'] = lr * f
        self.it += 1
