# Training code for the shapes experiments (Chapter 4 of my thesis).
# Adapted from the pytorch imagenet example.   -- 06/2017
# 2019: loss.data[0] -> loss.data.item() so that it runs with 1.x
from __future__ import print_function
import argparse
import os
import random
import shutil
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from torch.autograd import Variable
import torch.utils.data

from models import resnet14
from shapes import Shapes
from utils import AverageMeter, accuracy, ConfusionMeter

parser = argparse.ArgumentParser(description='Shapes training')
parser.add_argument('--epochs', default=3, type=int)
parser.add_argument('-b', '--batch-size', default=32, type=int)
parser.add_argument('--lr', '--learning-rate', default=0.05, type=float)
parser.add_argument('--momentum', default=0.9, type=float)
parser.add_argument('--weight-decay', '--wd', default=1e-4, type=float)
parser.add_argument('--print-freq', '-p', default=5, type=int)
parser.add_argument('--resume', default='', type=str)
parser.add_argument('--out', default='', type=str)
parser.add_argument('--seed', default=1, type=int)
parser.add_argument('--label-noise', default=0.0, type=float)
args = parser.parse_args()

use_cuda = torch.cuda.is_available()
best_prec1 = 0


def main():
    global best_prec1
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    if use_cuda:
        torch.cuda.manual_seed_all(args.seed)

    outdir = args.out or tempfile.mkdtemp()

    train_set = Shapes(320, train=True, noise=args.label_noise)
    val_set = Shapes(128, train=False)
    train_loader = torch.utils.data.DataLoader(
        train_set, batch_size=args.batch_size, shuffle=True, drop_last=False)
    val_loader = torch.utils.data.DataLoader(
        val_set, batch_size=args.batch_size, shuffle=False)

    model = resnet14(num_classes=train_set.num_classes)
    criterion = nn.CrossEntropyLoss()
    if use_cuda:
        model = nn.DataParallel(model).cuda()
        criterion = criterion.cuda()

    # biases and bn parameters are not decayed
    decay, no_decay = [], []
    for name, p in model.named_parameters():
        (no_decay if p.dim() == 1 else decay).append(p)
    optimizer = optim.SGD([{'params': decay, 'weight_decay': args.weight_decay},
                           {'params': no_decay, 'weight_decay': 0.}],
                          args.lr, momentum=args.momentum, nesterov=True)

    start_epoch = 0
    if args.resume:
        ckpt = torch.load(args.resume, map_location='cpu')
        start_epoch = ckpt['epoch']
        best_prec1 = ckpt['best_prec1']
        model.load_state_dict(ckpt['state_dict'])

    for epoch in range(start_epoch, args.epochs):
        adjust_learning_rate(optimizer, epoch)
        train(train_loader, model, criterion, optimizer, epoch)
        prec1, confusion = validate(val_loader, model, criterion)

        is_best = prec1 > best_prec1
        best_prec1 = max(prec1, best_prec1)
        save_checkpoint({
            'epoch': epoch + 1,
            'state_dict': model.state_dict(),
            'best_prec1': best_prec1,
        }, is_best, outdir)
    print(confusion)
    print(' * best Prec@1 %.4f' % best_prec1)


def train(loader, model, criterion, optimizer, epoch):
    batch_time = AverageMeter()
    losses = AverageMeter()
    top1 = AverageMeter()
    top2 = AverageMeter()
    gnorms = AverageMeter()

    model.train()
    end = time.time()
    for i, (input, target) in enumerate(loader):
        if use_cuda:
            input = input.cuda()
            target = target.cuda()
        input_var = Variable(input)
        target_var = Variable(target)

        output = model(input_var)
        loss = criterion(output, target_var)

        prec1, prec2 = accuracy(output.data, target, topk=(1, 2))
        losses.update(loss.data.item(), input.size(0))
        top1.update(prec1.item(), input.size(0))
        top2.update(prec2.item(), input.size(0))

        optimizer.zero_grad()
        loss.backward()
        gnorms.update(grad_norm(model))
        optimizer.step()

        if use_cuda:
            torch.cuda.synchronize()
        batch_time.update(time.time() - end)
        end = time.time()

        if i % args.print_freq == 0:
            print('Epoch: [{0}][{1}/{2}]\tLoss {loss.val:.6f} ({loss.avg:.6f})\t'
                  'Prec@1 {top1.val:.3f} ({top1.avg:.3f})\tPrec@2 {top2.avg:.3f}\t'
                  'gnorm {g.avg:.5f}'.format(epoch, i, len(loader), loss=losses,
                                             top1=top1, top2=top2, g=gnorms))


def validate(loader, model, criterion):
    losses = AverageMeter()
    top1 = AverageMeter()
    confusion = ConfusionMeter(4)
    model.eval()
    for i, (input, target) in enumerate(loader):
        if use_cuda:
            input, target = input.cuda(), target.cuda()
        input_var = Variable(input, volatile=True)
        target_var = Variable(target, volatile=True)

        output = model(input_var)
        loss = criterion(output, target_var)
        prec1, = accuracy(output.data, target, topk=(1,))
        losses.update(loss.data.item(), input.size(0))
        top1.update(prec1.item(), input.size(0))
        confusion.add(output.data, target)
    print(' * val loss {loss.avg:.6f}  Prec@1 {top1.avg:.3f}'.format(loss=losses, top1=top1))
    return top1.avg, confusion


def grad_norm(model):
    total = 0.
    for p in model.parameters():
        if p.grad is not None:
            total += p.grad.data.norm(2).item() ** 2
    return total ** 0.5


def save_checkpoint(state, is_best, outdir):
    fname = os.path.join(outdir, 'checkpoint.pth.tar')
    torch.save(state, fname)
    if is_best:
        shutil.copyfile(fname, os.path.join(outdir, 'model_best.pth.tar'))


def adjust_learning_rate(optimizer, epoch):
    """decay by 10 every 2 epochs"""
    lr = args.lr * (0.1 ** (epoch // 2))
    for param_group in optimizer.param_groups:
        param_group['lr'] = lr


if __name__ == '__main__':
    main()
