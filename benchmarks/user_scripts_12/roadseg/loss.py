import torch
import torch.nn as nn
import torch.nn.functional as F


class SegLoss(nn.Module):
    """weighted CE + dice over the classes that occur in the batch"""

    def __init__(self, weights, ignore=255, dice=0.5):
        super(SegLoss, self).__init__()
        self.weights = weights
        self.ignore = ignore
        self.dice = dice

    def forward(self, logits, target):
        w = torch.FloatTensor(self.weights)
        if logits.is_cuda:
            w = w.cuda()
        ce = F.cross_entropy(logits, target, weight=w, ignore_index=self.ignore)
        prob = F.softmax(logits.float(), dim=1)
        valid = (target != self.ignore).float()
        dice, n = 0., 0
        for c in range(logits.size(1)):
            t = (target == c).float()
            if t.sum().item() == 0:
                continue
            p = prob[:, c] * valid
            dice = dice + 1 - (2 * (p * t).sum() + 1.) / (p.sum() + t.sum() + 1.)
            n += 1
        return ce + self.dice * dice / max(n, 1)
