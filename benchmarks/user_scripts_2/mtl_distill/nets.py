import torch
from torch import nn
import torch.nn.functional as F

_models = {}


def register_model(fn):
    _models[fn.__name__] = fn
    return fn


def create_model(name, checkpoint=None, **kw):
    m = _models[name](**kw)
    if checkpoint:
        m.load_state_dict(checkpoint)
    return m


class Trunk(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True))
        self.stages = nn.ModuleList()
        for k in range(depth):
            self.stages.append(nn.Sequential(
                nn.Conv2d(width, width, 3, stride=2 if k < 2 else 1, padding=1), nn.GroupNorm(4, width), nn.SiLU()))

    def forward(self, x):
        feats = [self.stem(x)]
        for s in self.stages:
            feats.append(s(feats[-1]))
        return feats


class MultiTask(nn.Module):
    def __init__(self, width=16, depth=3, kinds=4):
        super().__init__()
        self.trunk = Trunk(width, depth)
        self.kind = nn.Linear(width, kinds)
        self.light = nn.Linear(width, 3)
        self.depth = nn.Conv2d(2 * width, 1, 3, padding=1)
        self.log_var = nn.ParameterDict({k: nn.Parameter(torch.zeros(())) for k in ('kind', 'depth', 'light')})

    def forward(self, x):
        f = self.trunk(x)
        g = f[-1].mean((2, 3))
        up = F.interpolate(f[-1], size=f[0].shape[-2:], mode='bilinear', align_corners=False)
        return {'kind': self.kind(g), 'light': F.normalize(self.light(g), dim=1),
                'depth': F.softplus(self.depth(torch.cat([f[0], up], 1))), 'feats': f}


@register_model
def teacher_wide(**kw):
    return MultiTask(width=24, depth=4, **kw)


@register_model
def student_thin(**kw):
    return MultiTask(width=12, depth=3, **kw)
