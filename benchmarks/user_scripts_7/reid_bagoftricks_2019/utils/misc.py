# encoding: utf-8
import logging
import os
import sys

import numpy as np


class AverageMeter(object):
    def __init__(self):
        self.reset()

    def reset(self):
        self.val = self.avg = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count


def setup_logger(name, save_dir):
    logger = logging.getLogger(name)
    logger.setLevel(logging.DEBUG)
    h = logging.StreamHandler(stream=sys.stdout)
    h.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s: %(message)s"))
    logger.addHandler(h)
    if save_dir:
        os.makedirs(save_dir, exist_ok=True)
        logger.addHandler(logging.FileHandler(os.path.join(save_dir, "log.txt"), mode='w'))
    return logger


def eval_func(distmat, q_pids, g_pids, q_camids, g_camids, max_rank=20):
    """Market1501 metric: gallery shots of the same id by the same camera are discarded."""
    num_q, num_g = distmat.shape
    max_rank = min(max_rank, num_g)
    indices = np.argsort(distmat, axis=1)
    matches = (g_pids[indices] == q_pids[:, np.newaxis]).astype(np.int32)
    all_cmc, all_ap = [], []
    for qi in range(num_q):
        order = indices[qi]
        keep = ~((g_pids[order] == q_pids[qi]) & (g_camids[order] == q_camids[qi]))
        raw = matches[qi][keep]
        if not raw.any():
            continue
        cmc = raw.cumsum()
        cmc[cmc > 1] = 1
        all_cmc.append(np.pad(cmc, (0, max(0, max_rank - len(cmc))), mode='edge')[:max_rank])
        prec = raw.cumsum() / (np.arange(len(raw)) + 1.0)
        all_ap.append((prec * raw).sum() / raw.sum())
    return np.asarray(all_cmc, dtype=np.float32).mean(0), float(np.mean(all_ap))
