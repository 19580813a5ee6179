import contextlib
import copy

import torch


class ModelEma:
    def __init__(self, model, decay):
        self.decay, self.n = decay, 0
        self.shadow = copy.deepcopy(model.state_dict())

    @torch.no_grad()
    def update(self, model):
        self.n += 1
        d = min(self.decay, (1 + self.n) / (10 + self.n))
        for k, v in model.state_dict().items():
            s = self.shadow[k]
            s.copy_(s * d + v * (1 - d) if s.is_floating_point() else v)

    @contextlib.contextmanager
    def swap(self, model):
        """evaluate with the averaged weights; the tensors themselves change places"""
        keep = {k: v.clone() for k, v in model.state_dict().items()}
        model.load_state_dict(self.shadow)
        try:
            yield model
        finally:
            model.load_state_dict(keep)
