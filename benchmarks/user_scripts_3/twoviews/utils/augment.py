# -*- coding: utf-8 -*-
import random
import torch
import torch.nn.functional as F


class TwoViews:
    """对同一张图做两次独立增强. 随机数: random (位置) 与 torch (颜色) 交替使用."""
    def __init__(self, size):
        self.size = size

    def one(self, x):
        # 随机裁剪 + 缩放
        s = random.randint(self.size // 2, self.size)
        i, j = random.randint(0, self.size - s), random.randint(0, self.size - s)
        x = F.interpolate(x[None, :, i:i + s, j:j + s], size=(self.size, self.size),
                          mode='bilinear', align_corners=False)[0]
        if random.random() < 0.5:
            x = torch.flip(x, [2])
        # 颜色抖动
        gain = 1 + 0.4 * (torch.rand(3, 1, 1) - 0.5)
        bias = 0.2 * (torch.rand(1) - 0.5)
        x = x * gain + bias
        if random.random() < 0.2:
            x = x.mean(0, keepdim=True).expand(3, -1, -1)
        return x

    def __call__(self, x):
        return self.one(x), self.one(x)
