import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SubsetRandomSampler


def interactions(n_users, n_items, per_user, seed):
    r = np.random.RandomState(seed)
    a, b = r.randn(n_users, 4), r.randn(n_items, 4)
    s = a @ b.T + r.gumbel(size=(n_users, n_items)) * 1.2
    top = np.argsort(-s, 1)[:, :per_user + 2]
    train = np.array([(u, i) for u in range(n_users) for i in top[u, 2:]])
    return train, top[:, 0], top[:, 1]          # train pairs, validation item, test item


class Pairs(Dataset):
    """user, positive, k negatives; negatives come from a torch.Generator shared with the sampler"""

    def __init__(self, pairs, n_items, k, gen):
        self.pairs, self.n_items, self.k, self.gen = pairs, n_items, k, gen
        self.seen = {}
        for u, i in pairs:
            self.seen.setdefault(int(u), set()).add(int(i))

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, n):
        u, i = self.pairs[n]
        neg = []
        while len(neg) < self.k:
            j = torch.randint(self.n_items, (1,), generator=self.gen).item()
            if j not in self.seen[int(u)]:
                neg.append(j)
        return int(u), int(i), torch.tensor(neg), n


def make_loaders(cfg):
    train, val, test = interactions(cfg.n_users, cfg.n_items, cfg.per_user, cfg.seed)
    gen = torch.Generator().manual_seed(cfg.seed)
    ds = Pairs(train, cfg.n_items, cfg.negatives, gen)
    main = DataLoader(ds, batch_size=cfg.batch, sampler=RandomSampler(ds, generator=gen))
    # small probe set for the temperature, same generator
    probe = DataLoader(ds, batch_sampler=BatchSampler(SubsetRandomSampler(range(0, len(ds), 9), generator=gen), 64, False))
    return ds, main, probe, torch.from_numpy(val), torch.from_numpy(test)
