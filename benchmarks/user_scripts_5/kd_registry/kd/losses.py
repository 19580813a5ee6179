import torch
import torch.nn as nn
import torch.nn.functional as F

from .registry import LOSSES


@LOSSES.register
class SoftTarget(nn.Module):
    def __init__(self, T=4.0, weight=1.0):
        super().__init__()
        self.T, self.weight = T, weight

    def forward(self, s_out, t_out, target):
        p = F.log_softmax(s_out[0] / self.T, dim=1)
        q = F.softmax(t_out[0] / self.T, dim=1)
        return self.weight * F.kl_div(p, q, reduction="batchmean") * self.T ** 2


@LOSSES.register
class SmoothCE(nn.Module):
    def __init__(self, eps=0.1, num_classes=10, weight=1.0):
        super().__init__()
        self.eps, self.n, self.weight = eps, num_classes, weight

    def forward(self, s_out, t_out, target):
        onehot = torch.zeros(len(target), self.n)
        onehot = onehot.scatter_(1, target.cpu().unsqueeze(1), 1.0).to(target.device)
        soft = onehot * (1 - self.eps) + self.eps / self.n
        return -self.weight * (soft * F.log_softmax(s_out[0], 1)).sum(1).mean()


@LOSSES.register
class Similarity(nn.Module):
    """Similarity-preserving KD (Tung & Mori), batch x batch matrices"""

    def __init__(self, weight=10.0):
        super().__init__()
        self.weight = weight

    @staticmethod
    def gram(f):
        f = f.view(f.size(0), -1)
        g = torch.zeros(f.size(0), f.size(0), device=f.device)
        for i in range(f.size(0)):
            g[i] = (f * f[i]).sum(dim=1)
        return F.normalize(g, dim=1)

    def forward(self, s_out, t_out, target):
        return self.weight * F.mse_loss(self.gram(s_out[1][-1]), self.gram(t_out[1][-1]))
