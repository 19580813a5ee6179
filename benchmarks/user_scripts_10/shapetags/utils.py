import copy
import random

import numpy as np
import torch


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)
    # results have to be the same for the paper tables
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


class AverageMeter(object):
    """Computes and stores the average and current value"""

    def __init__(self):
        self.reset()

    def reset(self):
        self.val = 0
        self.avg = 0
        self.sum = 0
        self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count


class ModelEMA:
    def __init__(self, model, decay=0.999):
        self.module = copy.deepcopy(model).eval()
        self.decay = decay
        for p in self.module.parameters():
            p.requires_grad_(False)

    def update(self, model):
        with torch.no_grad():
            msd = model.state_dict()
            for k, v in self.module.state_dict().items():
                if v.dtype.is_floating_point:
                    v.copy_(v * self.decay + msd[k] * (1.0 - self.decay))
                else:
                    v.copy_(msd[k])


def batch_f1(logits, targets, threshold=0.5):
    """mean f1 over the samples of a batch"""
    pred = (torch.sigmoid(logits) > threshold).float().detach().cpu().numpy()
    true = targets.cpu().numpy()
    tp = (pred * true).sum(1)
    return float((2 * tp / np.maximum(pred.sum(1) + true.sum(1), 1)).mean())


def average_precision(scores, labels):
    order = np.argsort(-scores, kind='stable')
    labels = labels[order]
    if labels.sum() == 0:
        return 0.0
    precision = np.cumsum(labels) / (np.arange(len(labels)) + 1)
    return float((precision * labels).sum() / labels.sum())


def mean_ap(scores, labels):
    return float(np.mean([average_precision(scores[:, c], labels[:, c]) for c in range(scores.shape[1])]))
