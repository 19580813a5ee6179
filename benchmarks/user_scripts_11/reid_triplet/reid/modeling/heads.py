import torch
import torch.nn as nn

from reid.registry import HEADS


class GeM(nn.Module):
    def __init__(self, p=3.0, eps=1e-6):
        super(GeM, self).__init__()
        self.p = nn.Parameter(torch.ones(1) * p)
        self.eps = eps

    def forward(self, x):
        x = x.float().clamp(min=self.eps).pow(self.p)
        return x.mean(dim=(2, 3)).pow(1.0 / self.p)


@HEADS.register('bnneck')
class BNNeck(nn.Module):
    def __init__(self, dim, num_classes):
        super(BNNeck, self).__init__()
        self.pool = GeM()
        self.bottleneck = nn.BatchNorm1d(dim)
        self.bottleneck.bias.requires_grad_(False)
        self.classifier = nn.Linear(dim, num_classes, bias=False)
        nn.init.normal_(self.classifier.weight, std=0.001)

    def forward(self, x):
        global_feat = self.pool(x)
        feat = self.bottleneck(global_feat)
        if self.training:
            return self.classifier(feat), global_feat
        return feat
