import random

import torch
from torch.utils.data import Dataset


class TripleDataset(Dataset):
    """A positive triple with n corrupted heads or tails (mode) that are not known facts of the training graph."""

    def __init__(self, triples, n_entity, n_relation, n_negative, mode):
        self.triples = triples
        self.triple_set = set(triples)
        self.n_entity = n_entity
        self.n_negative = n_negative
        self.mode = mode
        self.count = {}
        for h, r, t in triples:
            self.count[(h, r)] = self.count.get((h, r), 3) + 1
            self.count[(t, -r - 1)] = self.count.get((t, -r - 1), 3) + 1

    def __len__(self):
        return len(self.triples)

    def __getitem__(self, i):
        h, r, t = self.triples[i]
        weight = self.count[(h, r)] + self.count[(t, -r - 1)]
        weight = torch.sqrt(1 / torch.Tensor([weight]))
        negatives = []
        while len(negatives) < self.n_negative:
            e = random.randint(0, self.n_entity - 1)
            fact = (e, r, t) if self.mode == "head" else (h, r, e)
            if fact not in self.triple_set:
                negatives.append(e)
        return torch.LongTensor([h, r, t]), torch.LongTensor(negatives), weight, self.mode

    @staticmethod
    def collate(batch):
        return (torch.stack([b[0] for b in batch]), torch.stack([b[1] for b in batch]),
                torch.cat([b[2] for b in batch]), batch[0][3])


def alternate(head_loader, tail_loader):
    """Endless stream, one batch of corrupted heads, one of corrupted tails."""
    def forever(loader):
        while True:
            yield from loader
    heads, tails = forever(head_loader), forever(tail_loader)
    while True:
        yield next(heads)
        yield next(tails)
