import numpy as np


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


class ConfusionMeter(object):
    def __init__(self, k):
        self.k = k
        self.mat = np.zeros((k, k), dtype=np.int64)

    def add(self, output, target):
        pred = output.max(1)[1]
        for p, t in zip(pred, target):
            self.mat[int(t), int(p)] += 1

    def __str__(self):
        return '\n'.join(' '.join('%4d' % v for v in row) for row in self.mat)


def accuracy(output, target, topk=(1,)):
    maxk = max(topk)
    batch_size = target.size(0)
    _, pred = output.topk(maxk, 1, True, True)
    pred = pred.t()
    correct = pred.eq(target.view(1, -1).expand_as(pred))
    res = []
    for k in topk:
        correct_k = correct[:k].reshape(-1).float().sum(0)
        res.append(correct_k.mul_(100.0 / batch_size))
    return res
