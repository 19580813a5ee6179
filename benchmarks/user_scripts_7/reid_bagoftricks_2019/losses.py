# encoding: utf-8
import torch
from torch import nn


def euclidean_dist(x, y):
    m, n = x.size(0), y.size(0)
    xx = torch.pow(x, 2).sum(1, keepdim=True).expand(m, n)
    yy = torch.pow(y, 2).sum(1, keepdim=True).expand(n, m).t()
    dist = xx + yy
    dist.addmm_(x, y.t(), beta=1, alpha=-2)
    return dist.clamp(min=1e-12).sqrt()


class TripletLoss(object):
    """Batch-hard triplet loss."""

    def __init__(self, margin):
        self.ranking_loss = nn.MarginRankingLoss(margin=margin)

    def __call__(self, feat, labels):
        dist = euclidean_dist(feat, feat)
        n = dist.size(0)
        mask = labels.expand(n, n).eq(labels.expand(n, n).t())
        dist_ap, dist_an = [], []
        for i in range(n):
            dist_ap.append(dist[i][mask[i]].max().unsqueeze(0))
            dist_an.append(dist[i][mask[i] == 0].min().unsqueeze(0))
        dist_ap, dist_an = torch.cat(dist_ap), torch.cat(dist_an)
        y = torch.ones_like(dist_an)
        loss = self.ranking_loss(dist_an, dist_ap, y)
        return loss, dist_ap, dist_an


class CrossEntropyLabelSmooth(nn.Module):
    def __init__(self, num_classes, epsilon=0.1, use_gpu=True):
        super(CrossEntropyLabelSmooth, self).__init__()
        self.num_classes, self.epsilon, self.use_gpu = num_classes, epsilon, use_gpu
        self.logsoftmax = nn.LogSoftmax(dim=1)

    def forward(self, inputs, targets):
        log_probs = self.logsoftmax(inputs)
        targets = torch.zeros(log_probs.size()).scatter_(1, targets.unsqueeze(1).data.cpu(), 1)
        if self.use_gpu:
            targets = targets.cuda()
        targets = (1 - self.epsilon) * targets + self.epsilon / self.num_classes
        return (- targets * log_probs).mean(0).sum()


class CenterLoss(nn.Module):
    def __init__(self, num_classes, feat_dim):
        super(CenterLoss, self).__init__()
        self.num_classes = num_classes
        self.centers = nn.Parameter(torch.randn(num_classes, feat_dim))

    def forward(self, x, labels):
        b = x.size(0)
        d = torch.pow(x, 2).sum(1, keepdim=True).expand(b, self.num_classes) + \
            torch.pow(self.centers, 2).sum(1, keepdim=True).expand(self.num_classes, b).t()
        d = torch.addmm(d, x, self.centers.t(), alpha=-2)
        classes = torch.arange(self.num_classes).long().to(x.device)
        mask = labels.unsqueeze(1).expand(b, self.num_classes).eq(classes.expand(b, self.num_classes))
        return (d * mask.float()).clamp(min=1e-12, max=1e+12).sum() / b
