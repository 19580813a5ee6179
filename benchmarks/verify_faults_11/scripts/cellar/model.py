import torch
from torch import nn

from .data import CHANNELS, STAGES
from .layers import LockedDropout, Recurrence


class Watcher(nn.Module):
    def __init__(self, hidden=40, p=0.2):
        super().__init__()
        self.hidden = hidden
        self.encode = nn.Linear(CHANNELS, hidden)
        self.norm = nn.BatchNorm1d(hidden)
        self.drop_in = LockedDropout(p)
        self.recurrence = Recurrence(hidden, hidden)
        self.drop_out = LockedDropout(p)
        self.decode = nn.Linear(hidden, STAGES)

    def start(self, rows):
        return torch.zeros(rows, self.hidden)

    def forward(self, x, state, fresh):
        h = torch.relu(self.norm(self.encode(x).transpose(1, 2)).transpose(1, 2))
        raw, state = self.recurrence(self.drop_in(h), state, fresh)
        dropped = self.drop_out(raw)
        return self.decode(dropped), state, raw, dropped
