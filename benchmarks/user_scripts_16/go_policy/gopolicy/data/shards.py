"""Positions in shards of uncompressed npy: `x` uint8 (N, planes, B, B), `move` int16
(B*B is pass) and `z` int8, the result seen from the side to move.  The shards are
memory-mapped, and the loader yields whole batches."""
import glob
import os

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


def ensure_shards(cfg):
    if os.path.isdir(cfg.shards):
        return
    os.makedirs(cfg.shards)
    rng = np.random.default_rng(cfg.seed)
    b = cfg.board
    for s in range(cfg.n_shards):
        n = cfg.shard_size
        x = np.zeros((n, cfg.planes, b, b), np.uint8)
        stones = rng.random((n, b, b))
        x[:, 0] = stones < 0.25
        x[:, 1] = stones > 0.75
        x[:, 2] = 1 - x[:, 0] - x[:, 1]
        x[:, 3:] = rng.random((n, cfg.planes - 3, b, b)) < 0.05
        # the "expert" plays at the empty point with the most friendly neighbours
        f = np.pad(x[:, 0].astype(np.int16) - x[:, 1], ((0, 0), (1, 1), (1, 1)))
        score = f[:, :-2, 1:-1] + f[:, 2:, 1:-1] + f[:, 1:-1, :-2] + f[:, 1:-1, 2:]
        score = np.where(x[:, 2] > 0, score * 10 + x[:, 3], -100).reshape(n, -1)
        move = score.argmax(1).astype(np.int16)
        z = np.sign(x[:, 0].sum((1, 2)).astype(np.int16) - x[:, 1].sum((1, 2)) + 0.5).astype(np.int8)
        for name, a in (("x", x), ("move", move), ("z", z)):
            np.save(os.path.join(cfg.shards, "%s_%04d.npy" % (name, s)), a)


def random_symmetry(x, move, rng):
    """One of the eight symmetries of the board for every position."""
    n, _, b, _ = x.shape
    out = np.empty_like(x)
    new_move = move.copy()
    points = np.arange(b * b).reshape(b, b)
    for i in range(n):
        k, flip = rng.integers(4), rng.integers(2)
        p = np.rot90(x[i], k, axes=(1, 2))
        q = np.rot90(points, k)
        if flip:
            p, q = p[:, :, ::-1], q[:, ::-1]
        out[i] = p
        if move[i] < b * b:
            new_move[i] = np.nonzero(q.reshape(-1) == move[i])[0][0]
    return out, new_move


class ShardStream(IterableDataset):
    def __init__(self, cfg, ids, train):
        self.cfg, self.ids, self.train = cfg, list(ids), train

    def _open(self, s):
        path = os.path.join(self.cfg.shards, "%s_%04d.npy")
        return [np.load(path % (name, s), mmap_mode="r") for name in ("x", "move", "z")]

    def __iter__(self):
        info = get_worker_info()
        wid, n_workers = (info.id, info.num_workers) if info else (0, 1)
        ids = self.ids[wid::n_workers]
        epoch = 0
        while True:
            rng = np.random.default_rng((self.cfg.seed, wid, epoch))
            for s in rng.permutation(ids) if self.train else ids:
                x, move, z = self._open(s)
                order = rng.permutation(len(x)) if self.train else np.arange(len(x))
                for k in range(0, len(x) - self.cfg.batch_size + 1, self.cfg.batch_size):
                    rows = np.sort(order[k:k + self.cfg.batch_size])
                    bx, bm, bz = x[rows], move[rows], z[rows]
                    if self.train:
                        bx, bm = random_symmetry(bx, bm, rng)
                    yield (torch.from_numpy(bx).float(),
                           torch.from_numpy(bm.astype(np.int64)),
                           torch.from_numpy(bz.astype(np.float32)))
            if not self.train:
                return
            epoch += 1


def make_loader(cfg, train):
    n = len(glob.glob(os.path.join(cfg.shards, "x_*.npy")))
    ids = range(1, n) if train else range(0, 1)
    workers = min(cfg.workers, len(ids)) if train else min(cfg.workers, 1)
    return DataLoader(ShardStream(cfg, ids, train), batch_size=None, num_workers=workers,
                      pin_memory=torch.cuda.is_available())
