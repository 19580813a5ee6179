# -*- coding: utf-8 -*-
# 自监督: 双视图 + EMA 教师 + 负样本队列
from types import SimpleNamespace

cfg = SimpleNamespace(
    seed=2024,
    n_images=640, img=32, classes=4,
    batch=32, epochs=6, probe_epochs=20,
    dim=32, queue=256, temp=0.15, momentum=0.98,
    lr=0.06, wd=5e-4, clip=None,
)
