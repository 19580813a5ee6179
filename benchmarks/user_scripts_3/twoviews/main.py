# -*- coding: utf-8 -*-
import os
import random
import numpy as np
import torch
from torch.utils.data import DataLoader

from config import cfg
from engine import knn, linear_probe, train_epoch
from models.moco import MoCo
from utils.augment import TwoViews
from utils.data import Views, make_images


def main():
    random.seed(cfg.seed)
    np.random.seed(cfg.seed)
    torch.manual_seed(cfg.seed)
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    torch.backends.cudnn.benchmark = True

    x, y = make_images(cfg.n_images, cfg.img, cfg.classes, cfg.seed)
    loader = DataLoader(Views(x, y, TwoViews(cfg.img)), batch_size=cfg.batch, shuffle=True,
                        drop_last=True, num_workers=0)
    model = MoCo(cfg.dim, cfg.queue, cfg.temp, cfg.momentum).to(device)
    opt = torch.optim.SGD(model.student.parameters(), lr=cfg.lr, momentum=0.9, weight_decay=cfg.wd)

    hard_np = np.zeros(cfg.n_images, np.float32)
    hard = torch.from_numpy(hard_np)      # 与 hard_np 共享内存
    for ep in range(cfg.epochs):
        loss = train_epoch(model, loader, opt, ep, cfg, device, hard)
        acc = linear_probe(model, x, y, cfg, device)
        kn = knn(model, x, y, device)
        print('== 轮 %d 损失 %.4f 线性 %.4f kNN %.4f 最难 %s' % (
            ep, loss, acc, kn, np.argsort(-hard_np)[:3].tolist()))
        torch.save({'model': model.state_dict(), 'opt': opt.state_dict(), 'epoch': ep}, 'moco_last.pth')
    os.replace('moco_last.pth', 'moco_final.pth')


if __name__ == '__main__':
    main()
