import argparse
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.cuda.amp import GradScaler, autocast
from torch.utils.data import DataLoader

from dataset import PetFolder

parser = argparse.ArgumentParser(description='pets')
parser.add_argument('--data', default='data')
parser.add_argument('--epochs', type=int, default=4)
parser.add_argument('--batch-size', '-b', type=int, default=24)
parser.add_argument('--lr', type=float, default=0.05)
parser.add_argument('--wd', type=float, default=5e-4)
parser.add_argument('--patience', type=int, default=3)
parser.add_argument('--clip', type=float, default=2.0)
parser.add_argument('--print-freq', type=int, default=4)
parser.add_argument('--seed', type=int, default=1)
parser.add_argument('--no-amp', action='store_true')


class AverageMeter(object):
    def __init__(self, name):
        self.name = name
        self.reset()

    def reset(self):
        self.val = self.avg = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count

    def __str__(self):
        return '{} {:.5f} ({:.5f})'.format(self.name, self.val, self.avg)


class Block(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.c1 = nn.Conv2d(i, o, 3, stride, 1, bias=False)
        self.b1 = nn.BatchNorm2d(o)
        self.c2 = nn.Conv2d(o, o, 3, 1, 1, bias=False)
        self.b2 = nn.BatchNorm2d(o)
        self.sc = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o))

    def forward(self, x):
        y = F.relu(self.b1(self.c1(x)))
        return F.relu(self.b2(self.c2(y)) + self.sc(x))


class Net(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.body = nn.Sequential(Block(3, 16, 1), Block(16, 32, 2), Block(32, 64, 2))
        self.fc = nn.Linear(64, n)

    def forward(self, x):
        x = self.body(x)
        x = F.adaptive_avg_pool2d(x, 1)
        return self.fc(x.view(x.size(0), -1))


def accuracy(output, target, topk=(1,)):
    maxk = max(topk)
    _, pred = output.topk(maxk, 1, True, True)
    correct = pred.t().eq(target.view(1, -1).expand_as(pred.t()))
    return [correct[:k].reshape(-1).float().sum(0).mul_(100.0 / target.size(0)).item() for k in topk]


def train(loader, model, opt, scaler, device, epoch, args):
    losses, top1, top2 = AverageMeter('Loss'), AverageMeter('Acc@1'), AverageMeter('Acc@2')
    model.train()
    for i, (x, y, idx) in enumerate(loader):
        x = x.to(device)
        y = y.to(device)
        with autocast(enabled=scaler.is_enabled()):
            out = model(x)
            per_sample = F.cross_entropy(out, y, reduction='none')
            loss = per_sample.mean()
        opt.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        gnorm = torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        if not torch.isfinite(gnorm):
            print('   non finite gradient, skipping'.ljust(40))
        scaler.step(opt)
        scaler.update()

        # hard files are augmented less next time
        loader.dataset.report(idx.tolist(), per_sample.detach().float().cpu().tolist())
        a1, a2 = accuracy(out, y, topk=(1, 2))
        losses.update(loss.item(), x.size(0))
        top1.update(a1, x.size(0))
        top2.update(a2, x.size(0))
        if i % args.print_freq == 0:
            print('Epoch [%d][%d/%d] %s %s %s' % (epoch, i, len(loader), losses, top1, top2))
    return losses.avg


def validate(loader, model, device, n_classes):
    model.eval()
    total, n = 0.0, 0
    preds, gts = [], []
    for x, y, _ in loader:
        x, y = x.to(device), y.to(device)
        out = model(x)
        total += F.cross_entropy(out, y, reduction='sum').item()
        n += y.size(0)
        preds.append(out.argmax(1).cpu().numpy())
        gts.append(y.cpu().numpy())
    preds, gts = np.concatenate(preds), np.concatenate(gts)
    f1 = []
    for c in range(n_classes):
        tp = ((preds == c) & (gts == c)).sum()
        f1.append(2 * tp / max(1, (preds == c).sum() + (gts == c).sum()))
    return total / n, float((preds == gts).mean()), float(np.mean(f1))


def main():
    args = parser.parse_args()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    torch.set_num_threads(1)

    tr = PetFolder(args.data + '/train', True, seed=args.seed)
    va = PetFolder(args.data + '/val', False)
    train_loader = DataLoader(tr, batch_size=args.batch_size, shuffle=True)
    val_loader = DataLoader(va, batch_size=args.batch_size, shuffle=False)

    model = Net(len(tr.classes)).to(device)
    opt = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=args.wd)
    sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.3, patience=0, threshold=1e-2)
    scaler = GradScaler(enabled=not args.no_amp and device.type == 'cuda')

    best, best_state, bad = float('inf'), None, 0
    for epoch in range(args.epochs):
        t0 = time.time()
        tr_loss = train(train_loader, model, opt, scaler, device, epoch, args)
        val_loss, acc, f1 = validate(val_loader, model, device, len(tr.classes))
        sched.step(val_loss)
        tr.strong = tr_loss < 1.35          # switch augmentation with the training loss
        print('epoch %d train %.6f val %.6f acc %.4f f1 %.4f lr %g strong %d (%.1f s)' % (
            epoch, tr_loss, val_loss, acc, f1, opt.param_groups[0]['lr'], tr.strong, time.time() - t0))
        if val_loss < best:
            best, bad = val_loss, 0
            best_state = {k: v.detach().clone() for k, v in model.state_dict().items()}
            torch.save({'model': best_state, 'scaler': scaler.state_dict(), 'epoch': epoch}, 'best.pt')
        else:
            bad += 1
            if bad >= args.patience:
                print('early stop')
                break
    model.load_state_dict(best_state)
    print('best %.6f check %.6f' % (best, validate(val_loader, model, device, len(tr.classes))[0]))


if __name__ == '__main__':
    main()
