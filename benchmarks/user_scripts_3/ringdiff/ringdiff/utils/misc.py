import random
from types import SimpleNamespace

import numpy as np
import torch
import yaml


def _ns(d):
    return SimpleNamespace(**{k: _ns(v) if isinstance(v, dict) else v for k, v in d.items()})


def load_cfg(path, overrides=()):
    with open(path) as f:
        raw = yaml.safe_load(f)
    for o in overrides:                      # e.g. optim.lr=3e-4
        key, val = o.split("=", 1)
        node = raw
        *parents, leaf = key.split(".")
        for p in parents:
            node = node[p]
        node[leaf] = yaml.safe_load(val)
    return _ns(raw)


def seed_all(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def infinite(loader):
    while True:
        for batch in loader:
            yield batch


class EMA:
    """Exponential moving average of weights; `swap` puts them into the model for sampling."""

    def __init__(self, model, decay):
        self.decay = decay
        self.shadow = {k: v.detach().clone() for k, v in model.state_dict().items()}
        self.backup = None

    def update(self, model):
        for k, v in model.state_dict().items():
            if v.dtype.is_floating_point:
                self.shadow[k] = self.decay * self.shadow[k] + (1.0 - self.decay) * v.detach()
            else:
                self.shadow[k] = v.clone()

    def swap(self, model):
        self.backup = {k: v.detach().clone() for k, v in model.state_dict().items()}
        model.load_state_dict(self.shadow)

    def restore(self, model):
        model.load_state_dict(self.backup)
        self.backup = None
