from __future__ import annotations

import numpy as np
import torch.nn.functional as F
from torch import Tensor


def dice_loss(prob: Tensor, target: Tensor, eps: float = 1.0) -> Tensor:
    loss = 0.0
    for i in range(prob.shape[0]):
        p, t = prob[i].reshape(-1), target[i].reshape(-1)
        inter = (p * t).sum()
        loss = loss + 1.0 - (2.0 * inter + eps) / (p.sum() + t.sum() + eps)
    return loss / prob.shape[0]


def seg_loss(prob: Tensor, target: Tensor) -> Tensor:
    return 0.5 * F.binary_cross_entropy(prob, target) + 0.5 * dice_loss(prob, target)


def batch_scores(prob: np.ndarray, target: np.ndarray, threshold: float) -> tuple[float, float]:
    """Mean dice and IoU of the images of a batch, on the host."""
    dices, ious = [], []
    for p, t in zip(prob, target):
        p, t = p > threshold, t > 0.5
        inter = np.logical_and(p, t).sum()
        union = np.logical_or(p, t).sum()
        dices.append((2.0 * inter + 1e-6) / (p.sum() + t.sum() + 1e-6))
        ious.append((inter + 1e-6) / (union + 1e-6))
    return float(np.mean(dices)), float(np.mean(ious))
