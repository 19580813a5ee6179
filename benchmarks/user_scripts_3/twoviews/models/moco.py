# -*- coding: utf-8 -*-
import copy
import torch
import torch.nn as nn
import torch.nn.functional as F


def encoder(dim):
    def cb(i, o, s):
        return [nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True)]
    return nn.Sequential(*cb(3, 16, 2), *cb(16, 32, 2), *cb(32, 64, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(64, 64), nn.ReLU(inplace=True), nn.Linear(64, dim))


class MoCo(nn.Module):
    def __init__(self, dim, K, T, m):
        super().__init__()
        self.K, self.T, self.m = K, T, m
        self.student = encoder(dim)
        self.teacher = copy.deepcopy(self.student)
        for p in self.teacher.parameters():
            p.requires_grad = False
        self.register_buffer('queue', F.normalize(torch.randn(dim, K), dim=0))
        self.register_buffer('ptr', torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def update_teacher(self):
        for ps, pt in zip(self.student.parameters(), self.teacher.parameters()):
            pt.data = pt.data * self.m + ps.data * (1. - self.m)

    @torch.no_grad()
    def enqueue(self, keys):
        b = keys.size(0)
        p = int(self.ptr)
        assert self.K % b == 0
        self.queue[:, p:p + b] = keys.T
        self.ptr[0] = (p + b) % self.K

    def forward(self, a, b):
        q = F.normalize(self.student(a), dim=1)
        with torch.no_grad():
            self.update_teacher()
            # 打乱 BN 的批次 (shuffle BN), CPU 随机数
            perm = torch.randperm(b.size(0)).to(b.device)
            k = F.normalize(self.teacher(b[perm]), dim=1)
            k = k[torch.argsort(perm)]
        pos = torch.einsum('nc,nc->n', q, k).unsqueeze(-1)
        neg = torch.einsum('nc,ck->nk', q, self.queue.clone().detach())
        logits = torch.cat([pos, neg], dim=1) / self.T
        labels = torch.zeros(logits.size(0), dtype=torch.long).to(logits.device)
        self.enqueue(k)
        return logits, labels
