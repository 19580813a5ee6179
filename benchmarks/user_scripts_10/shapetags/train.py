import argparse
import os

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from dataset import TagDataset
from make_data import make_dataset
from model import TagNet
from transforms import train_transform, val_transform
from utils import AverageMeter, ModelEMA, batch_f1, mean_ap, set_seed


def get_args():
    parser = argparse.ArgumentParser(description='multi-label tagging')
    parser.add_argument('--data', default='data', type=str)
    parser.add_argument('--n-images', default=20000, type=int)
    parser.add_argument('--size', default=192, type=int, help='size of the PNGs')
    parser.add_argument('--crop', default=160, type=int, help='input size of the network')
    parser.add_argument('--width', default=64, type=int)
    parser.add_argument('-b', '--batch-size', default=64, type=int)
    parser.add_argument('--epochs', default=30, type=int)
    parser.add_argument('--lr', default=1e-3, type=float)
    parser.add_argument('--wd', default=1e-2, type=float)
    parser.add_argument('--clip', default=5.0, type=float)
    parser.add_argument('-j', '--workers', default=2, type=int)
    parser.add_argument('--print-freq', default=20, type=int)
    parser.add_argument('--seed', default=42, type=int)
    parser.add_argument('--out', default='runs', type=str)
    return parser.parse_args()


def train(loader, model, ema, optimizer, scheduler, pos_weight, epoch, args, device):
    losses, f1s = AverageMeter(), AverageMeter()
    model.train()
    for i, (images, targets) in enumerate(loader):
        images = images.to(device)
        targets = targets.to(device)

        outputs = model(images)
        weight = torch.tensor(pos_weight).to(device)
        loss = F.binary_cross_entropy_with_logits(outputs, targets, pos_weight=weight)

        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        scheduler.step()
        ema.update(model)

        losses.update(loss.item(), images.size(0))
        f1s.update(batch_f1(outputs, targets), images.size(0))
        if i % args.print_freq == 0:
            print('Epoch [%d] %d/%d  loss %.4f (%.4f)  f1 %.3f  lr %.2e' % (
                epoch, i, len(loader), losses.val, losses.avg, f1s.avg, scheduler.get_last_lr()[0]))
    return losses.avg, f1s.avg


def validate(loader, model, pos_weight, device):
    model.eval()
    losses = AverageMeter()
    weight = torch.tensor(pos_weight).to(device)
    scores, labels = [], []
    with torch.no_grad():
        for images, targets in loader:
            images, targets = images.to(device), targets.to(device)
            outputs = model(images)
            val_loss = F.binary_cross_entropy_with_logits(outputs, targets, pos_weight=weight)
            losses.update(val_loss.item(), images.size(0))
            scores.append(torch.sigmoid(outputs).cpu().numpy())
            labels.append(targets.cpu().numpy())
    return losses.avg, mean_ap(np.concatenate(scores), np.concatenate(labels))


def predict_tta(loader, model, device):
    """average of the image and its mirror image"""
    model.eval()
    outs, labels = [], []
    for images, targets in loader:
        images = images.to(device)
        p1 = torch.sigmoid(model(images))
        p2 = torch.sigmoid(model(images.flip(3)))
        outs.append((p1 + p2) / 2)
        labels.append(targets)
    return torch.cat(outs).detach().cpu().numpy(), torch.cat(labels).numpy()


def main():
    args = get_args()
    set_seed(args.seed)
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')

    if not os.path.exists(os.path.join(args.data, 'labels.csv')):
        make_dataset(args.data, args.n_images, args.size)

    train_ds = TagDataset(args.data, 'train', train_transform(args.crop))
    val_ds = TagDataset(args.data, 'val', val_transform(args.crop))
    print('%d train, %d val images, classes: %s' % (len(train_ds), len(val_ds), ', '.join(train_ds.classes)))
    train_loader = DataLoader(train_ds, batch_size=args.batch_size, shuffle=True,
                              num_workers=args.workers, drop_last=True)
    val_loader = DataLoader(val_ds, batch_size=args.batch_size * 2, num_workers=args.workers)

    model = TagNet(len(train_ds.classes), args.width).to(device)
    ema = ModelEMA(model, decay=0.99)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=args.wd)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=args.lr, total_steps=args.epochs * len(train_loader))
    pos_weight = train_ds.pos_weight()
    os.makedirs(args.out, exist_ok=True)
    log = open(os.path.join(args.out, 'log.csv'), 'w')

    best = 0.0
    for epoch in range(args.epochs):
        tr_loss, tr_f1 = train(train_loader, model, ema, optimizer, scheduler, pos_weight, epoch, args, device)
        va_loss, va_map = validate(val_loader, model, pos_weight, device)
        _, ema_map = validate(val_loader, ema.module, pos_weight, device)
        print('Epoch [%d] train loss %.4f  val loss %.4f  val mAP %.4f  ema mAP %.4f' % (
            epoch, tr_loss, va_loss, va_map, ema_map))
        log.write('%d,%.5f,%.5f,%.5f,%.5f,%.5f\n' % (epoch, tr_loss, tr_f1, va_loss, va_map, ema_map))
        log.flush()
        torch.cuda.empty_cache()
        if ema_map > best:
            best = ema_map
            torch.save({'epoch': epoch, 'model': model.state_dict(), 'ema': ema.module.state_dict()},
                       os.path.join(args.out, 'best.pth'))

    final, labels = predict_tta(val_loader, ema.module, device)
    print('best ema mAP %.4f, with flip TTA %.4f' % (best, mean_ap(final, labels)))


if __name__ == '__main__':
    main()
