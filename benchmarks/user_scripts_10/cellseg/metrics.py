from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from data import CLASSES


class DiceCELoss(nn.Module):
    def __init__(self, class_freq: list[float], eps: float = 1.0):
        super().__init__()
        self.class_freq = class_freq
        self.eps = eps

    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        weight = 1.0 / torch.sqrt(torch.tensor(self.class_freq))
        weight = (weight / weight.mean()).to(logits.device)
        ce = F.cross_entropy(logits, target, weight=weight)
        onehot = torch.eye(logits.shape[1])[target.cpu()].permute(0, 3, 1, 2).to(logits.device)
        prob = logits.softmax(dim=1)
        inter = (prob * onehot).sum(dim=(0, 2, 3))
        union = prob.sum(dim=(0, 2, 3)) + onehot.sum(dim=(0, 2, 3))
        dice = 1 - ((2 * inter + self.eps) / (union + self.eps)).mean()
        return ce + dice


class SegMeter:
    """IoU and Dice per class, pixel accuracy, from counts accumulated over the validation set."""

    def __init__(self, n_classes: int):
        self.n = n_classes
        self.tp = [0] * n_classes
        self.fp = [0] * n_classes
        self.fn = [0] * n_classes

    def update(self, logits: torch.Tensor, target: torch.Tensor) -> None:
        pred = logits.argmax(dim=1)
        for c in range(self.n):
            p, t = pred == c, target == c
            self.tp[c] += (p & t).sum().item()
            self.fp[c] += (p & ~t).sum().item()
            self.fn[c] += (~p & t).sum().item()

    def compute(self) -> dict[str, float]:
        out = {}
        for c, name in enumerate(CLASSES):
            out[f"iou_{name}"] = self.tp[c] / max(1, self.tp[c] + self.fp[c] + self.fn[c])
            out[f"dice_{name}"] = 2 * self.tp[c] / max(1, 2 * self.tp[c] + self.fp[c] + self.fn[c])
        out["miou"] = sum(out[f"iou_{n}"] for n in CLASSES) / self.n
        out["acc"] = sum(self.tp) / max(1, sum(self.tp) + sum(self.fn))
        return out


def boundary_f1(pred: torch.Tensor, target: torch.Tensor, cls: int, tol: int = 2) -> torch.Tensor:
    """F1 of the contours of one class with a tolerance in pixels; stays on the device."""

    def contour(m: torch.Tensor) -> torch.Tensor:
        m = m.float()[:, None]
        return m - (1 - F.max_pool2d(1 - m, 3, 1, 1))

    a, b = contour(pred == cls), contour(target == cls)
    grow = lambda m: F.max_pool2d(m, 2 * tol + 1, 1, tol)
    prec = (a * grow(b)).sum() / a.sum().clamp(min=1)
    rec = (b * grow(a)).sum() / b.sum().clamp(min=1)
    return 2 * prec * rec / (prec + rec).clamp(min=1e-6)


def class_frequencies(masks, n_classes: int) -> list[float]:
    counts = torch.zeros(n_classes)
    for m in masks:
        counts += torch.bincount(torch.from_numpy(m.copy()).view(-1).long(), minlength=n_classes)
    return (counts / counts.sum()).clamp(min=1e-4).tolist()
