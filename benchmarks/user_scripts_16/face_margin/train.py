# -*- coding: utf-8 -*-
from __future__ import print_function
import argparse
import os
import random
import time

import numpy as np
import torch
import torch.nn as nn
from torch.optim.lr_scheduler import StepLR
from torch.utils import data

from data.dataset import FaceDataset, PairDataset
from make_data import make_faces
from models import resnet_face
from models.metrics import ArcMarginProduct

parser = argparse.ArgumentParser(description='face recognition, additive angular margin')
parser.add_argument('--root', default='./faces', type=str)
parser.add_argument('--toy-ids', default=10000, type=int, help='when root does not exist')
parser.add_argument('--toy-per-id', default=45, type=int)
parser.add_argument('--backbone', default='resnet_face34')
parser.add_argument('--width', default=64, type=int)
parser.add_argument('--input-size', default=112, type=int)
parser.add_argument('--num-classes', default=10000, type=int)
parser.add_argument('-b', '--batch-size', default=256, type=int)
parser.add_argument('--test-batch-size', default=64, type=int)
parser.add_argument('-j', '--workers', default=4, type=int)
parser.add_argument('--max-epoch', default=30, type=int)
parser.add_argument('--lr', default=0.1, type=float)
parser.add_argument('--lr-step', default=10, type=int)
parser.add_argument('--weight-decay', default=5e-4, type=float)
parser.add_argument('--print-freq', default=100, type=int)
parser.add_argument('--checkpoints', default='checkpoints')
parser.add_argument('--seed', default=2018, type=int)


def cal_accuracy(y_score, y_true):
    best_acc, best_th = 0, 0
    for th in np.sort(y_score):
        acc = np.mean((y_score >= th) == y_true)
        if acc > best_acc:
            best_acc, best_th = acc, th
    return best_acc, best_th


def lfw_test(model, loader, device):
    model.eval()
    scores, labels = [], []
    for img1, img2, same in loader:
        feats = []
        for img in (img1, img2):
            img = img.to(device)
            f = model(img) + model(torch.flip(img, [3]))
            feats.append(f / f.norm(dim=1, keepdim=True))
        score = (feats[0] * feats[1]).sum(1)
        scores.append(score.data.cpu().numpy())
        labels.append(same.numpy())
    model.train()
    return cal_accuracy(np.concatenate(scores), np.concatenate(labels) == 1)


def main():
    opt = parser.parse_args()
    random.seed(opt.seed)
    np.random.seed(opt.seed)
    torch.manual_seed(opt.seed)
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')

    if not os.path.exists(opt.root):
        make_faces(opt.root, opt.toy_ids, opt.toy_per_id, opt.input_size, opt.seed)
    train_dataset = FaceDataset(opt.root, 'train.txt', phase='train', input_size=opt.input_size)
    trainloader = data.DataLoader(train_dataset, batch_size=opt.batch_size, shuffle=True,
                                  num_workers=opt.workers, drop_last=True)
    testloader = data.DataLoader(PairDataset(opt.root, 'pairs.txt', opt.input_size),
                                 batch_size=opt.test_batch_size, num_workers=opt.workers)
    print('{} train iters per epoch'.format(len(trainloader)))

    criterion = nn.CrossEntropyLoss()
    model = getattr(resnet_face, opt.backbone)(width=opt.width, input_size=opt.input_size)
    metric_fc = ArcMarginProduct(512, opt.num_classes, device, s=30, m=0.5)
    model.to(device)
    model = nn.DataParallel(model)
    metric_fc.to(device)
    metric_fc = nn.DataParallel(metric_fc)

    optimizer = torch.optim.SGD([{'params': model.parameters()}, {'params': metric_fc.parameters()}],
                                lr=opt.lr, momentum=0.9, weight_decay=opt.weight_decay)
    scheduler = StepLR(optimizer, step_size=opt.lr_step, gamma=0.1)

    start = time.time()
    for i in range(opt.max_epoch):
        model.train()
        for ii, (data_input, label) in enumerate(trainloader):
            data_input = data_input.to(device)
            label = label.to(device).long()
            feature = model(data_input)
            output = metric_fc(feature, label)
            loss = criterion(output, label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

            iters = i * len(trainloader) + ii
            output = output.data.cpu().numpy()
            output = np.argmax(output, axis=1)
            acc = np.mean((output == label.data.cpu().numpy()).astype(int))
            if np.isnan(loss.data.cpu().numpy()):
                raise RuntimeError('loss is nan at iter {}'.format(iters))
            if iters % opt.print_freq == 0:
                speed = opt.print_freq / (time.time() - start)
                print('train epoch {} iter {} {:.2f} iters/s loss {:.4f} acc {:.4f}'.format(
                    i, ii, speed, loss.item(), acc))
                start = time.time()
        scheduler.step()

        acc, th = lfw_test(model, testloader, device)
        print('epoch {} pairs accuracy: {:.4f} threshold: {:.4f}'.format(i, acc, th))
        if not os.path.exists(opt.checkpoints):
            os.makedirs(opt.checkpoints)
        torch.save(model.module.state_dict(), os.path.join(opt.checkpoints, '%s_%d.pth' % (opt.backbone, i)))


if __name__ == '__main__':
    main()
