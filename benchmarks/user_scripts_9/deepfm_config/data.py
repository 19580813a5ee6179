import os

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


def make_clicks(cfg):
    """Synthetic click log: a bilinear user/item effect plus a few crosses."""
    path = os.path.join(cfg['data_dir'], 'clicks_%d.npz' % cfg['rows'])
    if os.path.exists(path):
        return path
    os.makedirs(cfg['data_dir'], exist_ok=True)
    rng = np.random.RandomState(0)
    n = cfg['rows']
    sparse = np.stack([np.minimum((rng.beta(0.6, 2.0, n) * v).astype(np.int64), v - 1)
                       for v in cfg['vocab'].values()], axis=1)
    dense = rng.lognormal(0, 1, (n, cfg['n_dense']))
    logit = -1.2
    for j, v in enumerate(cfg['vocab'].values()):
        logit = logit + (rng.normal(0, 0.6, v))[sparse[:, j]]
    cross = rng.normal(0, 0.8, (24, 40))
    logit = logit + cross[sparse[:, 6], np.minimum(sparse[:, 2], 39)] + 0.3 * np.log1p(dense[:, 0])
    label = (rng.rand(n) < 1 / (1 + np.exp(-logit))).astype(np.int64)
    np.savez(path, sparse=sparse, dense=dense, label=label)
    return path


class ClickDataset(Dataset):
    def __init__(self, sparse, dense, label):
        self.sparse = sparse
        self.dense = dense
        self.label = label

    def __len__(self):
        return len(self.label)

    def __getitem__(self, idx):
        sparse = torch.tensor(self.sparse[idx], dtype=torch.long)
        dense = torch.tensor(np.log1p(self.dense[idx]), dtype=torch.float32)
        label = torch.tensor(self.label[idx], dtype=torch.float32)
        return sparse, dense, label


def build_loaders(cfg):
    d = np.load(make_clicks(cfg))
    sparse, dense, label = d['sparse'], d['dense'], d['label']
    order = np.random.RandomState(cfg['seed']).permutation(len(label))
    n_tr, n_va = int(0.8 * len(order)), int(0.1 * len(order))
    splits = {'train': order[:n_tr], 'valid': order[n_tr:n_tr + n_va], 'test': order[n_tr + n_va:]}
    loaders = {}
    for name, idx in splits.items():
        ds = ClickDataset(sparse[idx], dense[idx], label[idx])
        loaders[name] = DataLoader(ds, batch_size=cfg['batch_size'], shuffle=(name == 'train'))
    return loaders
