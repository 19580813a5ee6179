import torch
from torch import nn

from .registry import LOSSES, register


class HeatLoss(nn.Module):
    def __init__(self, STACK_WEIGHTS, **kw):
        super().__init__()
        self.sw = STACK_WEIGHTS
        self.kw = kw
        self.last = None

    def forward(self, outs, heat, weight):
        per = []
        for s, o in zip(self.sw, outs):
            e = (o - heat).pow(2).flatten(2).mean(2) * weight
            per.append(s * self.reduce(e))
        self.last = [p.item() for p in per]        # read by the log hook and by the collapse guard
        return 100 * sum(per)


@register(LOSSES, 'mse')
class MSE(HeatLoss):
    def reduce(self, e):
        return e.mean()


@register(LOSSES, 'ohkm')
class OHKM(HeatLoss):
    """online hard keypoint mining: the worst TOPK joints of each sample"""

    def reduce(self, e):
        return e.topk(self.kw['TOPK'], dim=1)[0].sum(1).mean() / self.kw['TOPK']
