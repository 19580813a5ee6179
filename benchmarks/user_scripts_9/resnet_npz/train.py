import argparse
import math
import time

import torch
import torch.nn as nn
import torch.optim as optim
from torch.utils.data import DataLoader

from dataset import NpzImages
from models import build_model
from utils import AverageMeter, LabelSmoothingLoss, accuracy, mixup_data, save_checkpoint, set_seed

parser = argparse.ArgumentParser(description='Small-image classification')
parser.add_argument('--data', default='./data')
parser.add_argument('--epochs', type=int, default=100)
parser.add_argument('-b', '--batch-size', type=int, default=128)
parser.add_argument('--lr', type=float, default=0.1)
parser.add_argument('--momentum', type=float, default=0.9)
parser.add_argument('--wd', type=float, default=5e-4)
parser.add_argument('--warmup', type=int, default=1, help='epochs of linear warm-up')
parser.add_argument('--mixup', type=float, default=0.2)
parser.add_argument('--clip', type=float, default=5.0)
parser.add_argument('--width', type=int, default=64)
parser.add_argument('--layers', default='3,4,6')
parser.add_argument('--num-classes', type=int, default=10)
parser.add_argument('--n-train', type=int, default=20000)
parser.add_argument('--n-val', type=int, default=300)
parser.add_argument('--print-freq', type=int, default=5)
parser.add_argument('--seed', type=int, default=1)
parser.add_argument('--out', default='./checkpoints')


def train(loader, model, criterion, optimizer, scheduler, epoch, args, device):
    losses = AverageMeter()
    top1 = AverageMeter()
    top5 = AverageMeter()
    norms = AverageMeter()
    model.train()
    for i, (images, target) in enumerate(loader):
        images = images.to(device)
        target = target.to(device)
        images, ta, tb, lam = mixup_data(images, target, args.mixup, device)

        output = model(images)
        loss = lam * criterion(output, ta) + (1 - lam) * criterion(output, tb)

        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        scheduler.step()

        acc1, acc5 = accuracy(output, ta, topk=(1, 5))
        losses.update(loss.item(), images.size(0))
        norms.update(norm.item())
        top1.update(acc1, images.size(0))
        top5.update(acc5, images.size(0))
        torch.cuda.empty_cache()

        if i % args.print_freq == 0:
            print('Epoch: [{0}][{1}/{2}]  Loss {3:.4f} ({4:.4f})  Acc@1 {5:.2f}  Acc@5 {6:.2f}  Norm {7:.3f}  LR {8:.4f}'.format(
                epoch, i, len(loader), losses.val, losses.avg, top1.avg, top5.avg, norms.avg,
                optimizer.param_groups[0]['lr']))
    return losses.avg, top1.avg


def validate(loader, model, criterion, device):
    losses = AverageMeter()
    top1 = AverageMeter()
    model.eval()
    for images, target in loader:
        images, target = images.to(device), target.to(device)
        output = model(images)
        loss = criterion(output, target)
        acc1, _ = accuracy(output, target, topk=(1, 5))
        losses.update(loss.item(), images.size(0))
        top1.update(acc1, images.size(0))
    return losses.avg, top1.avg


def main():
    args = parser.parse_args()
    set_seed(args.seed)
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')

    train_set = NpzImages(args.data, 'train', args.n_train, 0, True)
    val_set = NpzImages(args.data, 'val', args.n_val, 1, False)
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True)
    val_loader = DataLoader(val_set, batch_size=args.batch_size, shuffle=False)

    model = build_model(args).to(device)
    criterion = LabelSmoothingLoss(args.num_classes)
    optimizer = optim.SGD(model.parameters(), lr=args.lr, momentum=args.momentum,
                          weight_decay=args.wd, nesterov=True)
    total = args.epochs * len(train_loader)
    warm = args.warmup * len(train_loader)

    def lr_lambda(step):
        if step < warm:
            return (step + 1) / float(warm)
        return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, total - warm)))

    scheduler = optim.lr_scheduler.LambdaLR(optimizer, lr_lambda)

    best = 0.0
    for epoch in range(args.epochs):
        t0 = time.time()
        tr_loss, tr_acc = train(train_loader, model, criterion, optimizer, scheduler, epoch, args, device)
        va_loss, va_acc = validate(val_loader, model, criterion, device)
        is_best = va_acc > best
        best = max(best, va_acc)
        save_checkpoint({'epoch': epoch + 1, 'state_dict': model.state_dict(), 'best': best,
                         'optimizer': optimizer.state_dict()}, is_best, args.out)
        print('* epoch %d  train %.4f / %.2f  val %.4f / %.2f  best %.2f' % (
            epoch, tr_loss, tr_acc, va_loss, va_acc, best))
        print('  epoch time %.1fs' % (time.time() - t0))


if __name__ == '__main__':
    main()
