import torch
import torch.nn as nn
import torch.nn.functional as F


class DiceCELoss(nn.Module):
    """alpha * weighted CE + (1 - alpha) * soft Dice, as in eq. (4) of the paper."""

    def __init__(self, class_weights, alpha=0.5, eps=1e-5):
        super().__init__()
        self.class_weights = class_weights
        self.alpha = alpha
        self.eps = eps

    def forward(self, logits, target):
        weight = torch.tensor(self.class_weights).to(logits.device)
        ce = F.cross_entropy(logits, target, weight=weight)

        prob = torch.softmax(logits, dim=1)
        n_classes = logits.shape[1]
        dice = 0.0
        used = 0
        for c in range(1, n_classes):
            gt = (target == c).float()
            # slices without this organ do not count
            if gt.sum() == 0:
                continue
            inter = (prob[:, c] * gt).sum()
            dice = dice + 1 - (2 * inter + self.eps) / (prob[:, c].sum() + gt.sum() + self.eps)
            used += 1
        if used > 0:
            dice = dice / used
        return self.alpha * ce + (1 - self.alpha) * dice


def volume_dice(pred, gt, n_classes):
    """Per-class Dice of one stack of slices (numpy, for reporting)."""
    out = []
    for c in range(1, n_classes):
        p, g = pred == c, gt == c
        denom = p.sum() + g.sum()
        out.append(float("nan") if denom == 0 else 2.0 * (p & g).sum() / denom)
    return out
