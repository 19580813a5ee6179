"""RotatE: t ~ h * r with |r_i| = 1 (Sun et al., ICLR 2019)."""
import math

import torch
from torch import nn


class RotatE(nn.Module):
    def __init__(self, n_entity, n_relation, dim, gamma):
        super().__init__()
        self.dim = dim
        self.gamma = gamma
        self.bound = (gamma + 2.0) / dim
        self.entity = nn.Embedding(n_entity, 2 * dim)
        self.relation = nn.Embedding(n_relation, dim)
        nn.init.uniform_(self.entity.weight, -self.bound, self.bound)
        nn.init.uniform_(self.relation.weight, -self.bound, self.bound)

    def score(self, h, r, t, mode):
        """h, r, t broadcast to (batch, candidates, .)"""
        re_h, im_h = h.chunk(2, -1)
        re_t, im_t = t.chunk(2, -1)
        phase = r / (self.bound / math.pi)
        re_r, im_r = torch.cos(phase), torch.sin(phase)
        if mode == "head":
            # |h - t * conj(r)|: same value, and only the rotated side is broadcast
            re = re_r * re_t + im_r * im_t - re_h
            im = re_r * im_t - im_r * re_t - im_h
        else:
            re = re_h * re_r - im_h * im_r - re_t
            im = re_h * im_r + im_h * re_r - im_t
        return self.gamma - torch.stack([re, im]).norm(dim=0).sum(-1)

    def positive(self, triple):
        h, r, t = self.entity(triple[:, 0:1]), self.relation(triple[:, 1:2]), self.entity(triple[:, 2:3])
        return self.score(h, r, t, "tail")

    def negative(self, triple, candidates, mode):
        other = self.entity(candidates)
        r = self.relation(triple[:, 1:2])
        if mode == "head":
            return self.score(other, r, self.entity(triple[:, 2:3]), mode)
        return self.score(self.entity(triple[:, 0:1]), r, other, mode)
