import torch
from torch import nn


class LockedDropout(nn.Module):
    """One mask for all times of a window."""

    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        if not self.training or not self.p:
            return x
        mask = x.new_empty(x.size(0), 1, x.size(2)).bernoulli_(1 - self.p) / (1 - self.p)
        return x * mask


class Recurrence(nn.Module):
    """A gated cell over time; where a story starts, the state is forgotten."""

    def __init__(self, inputs, hidden):
        super().__init__()
        self.cell = nn.GRUCell(inputs, hidden)

    def forward(self, x, h, fresh):
        outputs = []
        for t in range(x.size(1)):
            h = h * (~fresh[:, t, None]).to(h.dtype)
            h = self.cell(x[:, t], h)
            outputs.append(h)
        return torch.stack(outputs, 1), h
