import numpy as np
import torch


def pinball(pred, target, quantiles):
    """pred (B, H, Q), target (B, H)"""
    loss = 0
    for i, q in enumerate(quantiles):
        e = target - pred[:, :, i]
        loss = loss + torch.max(q * e, (q - 1) * e).mean()
    return loss / len(quantiles)


def mape(p, y):
    return float(np.mean(np.abs((p - y) / np.maximum(np.abs(y), 1e-3))) * 100)


def coverage(lo, hi, y):
    return float(np.mean((y >= lo) & (y <= hi)) * 100)
