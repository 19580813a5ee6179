from __future__ import annotations

import numpy as np


def roc_auc(labels: np.ndarray, scores: np.ndarray) -> float:
    """Rank-based AUC with mid-ranks for ties."""
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks = (ends - (counts - 1) / 2.0)[inverse]
    pos = labels > 0.5
    n_pos, n_neg = int(pos.sum()), int((~pos).sum())
    if n_pos == 0 or n_neg == 0:
        return float("nan")
    return float((ranks[pos].sum() - n_pos * (n_pos + 1) / 2) / (n_pos * n_neg))


def normalized_entropy(labels: np.ndarray, scores: np.ndarray) -> float:
    p = np.clip(scores, 1e-7, 1 - 1e-7)
    ce = -(labels * np.log(p) + (1 - labels) * np.log(1 - p)).mean()
    base = np.clip(labels.mean(), 1e-7, 1 - 1e-7)
    return float(ce / -(base * np.log(base) + (1 - base) * np.log(1 - base)))
