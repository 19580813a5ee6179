import numpy as np
import torch
from torch.utils.data import Dataset, Sampler


class PackedTokens(Dataset):
    """windows of a memmap; doc_id tells which document a token belongs to (no attention across documents)"""

    def __init__(self, path, lo, hi, ctx):
        self.mm = np.memmap(path, np.uint16, 'r')[lo:hi]
        self.ctx = ctx            # changed by the trainer while it runs (short sequences first)

    def __len__(self):
        return (len(self.mm) - 1) // self.ctx

    def __getitem__(self, i):
        s = i * self.ctx
        w = self.mm[s:s + self.ctx + 1].astype(np.int64)
        doc = np.concatenate([[0], (w[:-1] == 0).cumsum()[:-1]])
        y = w[1:].copy()
        y[w[:-1] == 0] = -1       # the first token of a document cannot be known
        return torch.from_numpy(w[:-1].copy()), torch.from_numpy(y), torch.from_numpy(doc)


class ResumableSampler(Sampler):
    def __init__(self, ds, seed):
        self.ds, self.seed = ds, seed
        self.epoch, self.pos = 0, 0

    def __iter__(self):
        while True:
            g = torch.Generator()
            g.manual_seed(self.seed + self.epoch)
            order = torch.randperm(len(self.ds), generator=g).tolist()
            while self.pos < len(order):
                self.pos += 1
                yield order[self.pos - 1]
            self.epoch, self.pos = self.epoch + 1, 0

    def state_dict(self):
        return {'epoch': self.epoch, 'pos': self.pos}

    def load_state_dict(self, s):
        self.__dict__.update(s)
