import torch

from .data import STAGES


class Confusion:
    def __init__(self):
        self.table = torch.zeros(STAGES, STAGES, dtype=torch.long)

    def add(self, predicted, truth):
        self.table += torch.bincount(truth.flatten() * STAGES + predicted.flatten(), minlength=STAGES * STAGES).view(STAGES, STAGES)

    def accuracy(self):
        return (self.table.diag().sum() / self.table.sum()).item()

    def f1(self):
        hit = self.table.diag().float()
        return (2 * hit / (self.table.sum(0) + self.table.sum(1)).clamp(min=1)).mean().item()
