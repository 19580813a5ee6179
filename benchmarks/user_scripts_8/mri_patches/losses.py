import torch
import torch.nn as nn
import torch.nn.functional as F


class DiceLoss(nn.Module):
    def __init__(self, num_classes, smooth=1e-5):
        super().__init__()
        self.num_classes, self.smooth = num_classes, smooth

    def forward(self, logits, target):
        probs = torch.softmax(logits.float(), dim=1)
        onehot = torch.zeros(probs.shape).to(logits.device)
        onehot.scatter_(1, target.unsqueeze(1), 1)
        loss = 0
        for b in range(probs.shape[0]):
            for c in range(1, self.num_classes):
                inter = (probs[b, c] * onehot[b, c]).sum()
                denom = probs[b, c].sum() + onehot[b, c].sum()
                loss += 1 - (2 * inter + self.smooth) / (denom + self.smooth)
        return loss / (probs.shape[0] * (self.num_classes - 1))


class DeepSupervisionLoss(nn.Module):
    def __init__(self, num_classes, weights=(1.0, 0.5, 0.25)):
        super().__init__()
        self.dice, self.weights = DiceLoss(num_classes), weights
        self.class_weight = [0.3, 1.0, 1.2]

    def forward(self, outputs, target):
        total, norm = 0, 0
        for w, out in zip(self.weights, outputs):
            t = target
            if out.shape[2:] != target.shape[1:]:
                t = F.interpolate(target.unsqueeze(1).float(), size=out.shape[2:], mode='nearest').squeeze(1).long()
            ce = F.cross_entropy(out, t, weight=torch.tensor(self.class_weight).to(out.device))
            total = total + w * (ce + self.dice(out, t))
            norm += w
        return total / norm
