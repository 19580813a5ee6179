import copy

import torch
import torch.nn as nn


class Tagger(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embed = nn.EmbeddingBag(config.words, config.dim, mode="sum")
        self.norm = nn.BatchNorm1d(config.dim)
        self.body = nn.Sequential(nn.Linear(config.dim, 64), nn.GELU(), nn.Dropout(0.2), nn.Linear(64, config.tags))

    def forward(self, words, offsets, weights):
        return self.body(self.norm(self.embed(words, offsets, per_sample_weights=weights)))


class EMA:
    """Moving average of the weights; young averages forget faster."""

    def __init__(self, model, decay):
        self.model, self.decay, self.updates = copy.deepcopy(model).eval(), decay, 0
        for p in self.model.parameters():
            p.requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        self.updates += 1
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        for mine, theirs in zip(self.model.parameters(), model.parameters()):
            mine.mul_(decay).add_(theirs, alpha=1 - decay)
        for mine, theirs in zip(self.model.buffers(), model.buffers()):
            mine.copy_(theirs)
