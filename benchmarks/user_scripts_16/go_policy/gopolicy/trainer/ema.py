import copy

import torch


class Ema:
    """Moving average of the weights, used for evaluation and for self-play."""

    def __init__(self, model, decay):
        self.decay = decay
        self.model = copy.deepcopy(model).eval()
        for p in self.model.parameters():
            p.requires_grad_(False)

    @torch.no_grad()
    def update(self, model, step):
        d = min(self.decay, (1 + step) / (10 + step))
        for e, p in zip(self.model.parameters(), model.parameters()):
            e.mul_(d).add_(p, alpha=1 - d)
        for e, b in zip(self.model.buffers(), model.buffers()):
            e.copy_(b)
