from __future__ import print_function
import argparse
import os
import time

import numpy as np
import torch
import torch.nn.functional as F
import torch.optim as optim
from torch.autograd import Variable
from torch.utils.data import DataLoader

from dataset import CellCrops, WholeFields, make_stacks
from unet import UNet

parser = argparse.ArgumentParser(description='cell segmentation')
parser.add_argument('--data', default='stacks')
parser.add_argument('--n-train', type=int, default=600)
parser.add_argument('--n-val', type=int, default=40)
parser.add_argument('--fov', type=int, default=768, help='side of a field of view')
parser.add_argument('--cells', type=int, default=140)
parser.add_argument('--crop', type=int, default=256)
parser.add_argument('--stride', type=int, default=128, help='stride of the validation tiles')
parser.add_argument('--sigma', type=float, default=10.0)
parser.add_argument('--batch-size', type=int, default=16)
parser.add_argument('--epochs', type=int, default=120)
parser.add_argument('--lr', type=float, default=0.01)
parser.add_argument('--base', type=int, default=64)
parser.add_argument('--depth', type=int, default=4)
parser.add_argument('--dice', type=float, default=0.5)
parser.add_argument('--workers', type=int, default=2)
parser.add_argument('--threads', type=int, default=0)
parser.add_argument('--seed', type=int, default=1)
parser.add_argument('--resume', default='')
parser.add_argument('--out', default='run1')
args = parser.parse_args()

if args.threads:
    torch.set_num_threads(args.threads)
torch.manual_seed(args.seed)
device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
N_CLASSES = 3


def dice_loss(logits, target):
    prob = F.softmax(logits, dim=1)
    loss = 0.0
    for c in range(N_CLASSES):
        p = prob[:, c].contiguous().view(prob.size(0), -1)
        t = (target == c).float().view(prob.size(0), -1)
        inter = (p * t).sum(1)
        loss = loss + 1 - ((2 * inter + 1) / (p.sum(1) + t.sum(1) + 1)).mean()
    return loss / N_CLASSES


def loss_fn(logits, target, wmap):
    class_w = torch.FloatTensor([0.6, 1.0, 3.0]).to(device)
    ce = F.cross_entropy(logits, target, weight=class_w, reduction='none')
    ce = (ce * wmap).mean()
    return (1 - args.dice) * ce + args.dice * dice_loss(logits, target)


def hann2d(n):
    w = torch.hann_window(n + 2, periodic=False)[1:-1]
    return w[:, None] * w[None, :]


def predict_field(net, img):
    """Overlapping tiles, blended with a Hann window."""
    _, h, w = img.shape
    c, s = args.crop, args.stride
    out = torch.zeros(N_CLASSES, h, w)
    norm = torch.zeros(h, w)
    win = hann2d(c)
    for y in range(0, h - c + 1, s):
        for x in range(0, w - c + 1, s):
            tile = img[:, y:y + c, x:x + c].unsqueeze(0).to(device)
            p = F.softmax(net(tile), dim=1)[0].cpu()
            out[:, y:y + c, x:x + c] += p * win
            norm[y:y + c, x:x + c] += win
    return out / norm.clamp(min=1e-6)


def confusion(pred, lab):
    idx = lab.view(-1) * N_CLASSES + pred.view(-1)
    return torch.bincount(idx, minlength=N_CLASSES ** 2).view(N_CLASSES, N_CLASSES)


def validate(net, fields):
    net.eval()
    cm = torch.zeros(N_CLASSES, N_CLASSES).long()
    with torch.no_grad():
        for i in range(len(fields)):
            img, lab = fields[i]
            cm += confusion(predict_field(net, img).argmax(0), lab)
    iou = []
    for c in range(N_CLASSES):
        union = cm[c].sum() + cm[:, c].sum() - cm[c, c]
        iou.append(cm[c, c].item() / max(union.item(), 1))
    return iou


def train_epoch(net, loader, optimizer):
    net.train()
    total, seen, hits, pixels = 0.0, 0, 0, 0
    for img, lab, wmap in loader:
        img = Variable(img.to(device))
        lab = Variable(lab.to(device))
        wmap = Variable(wmap.to(device))
        optimizer.zero_grad()
        logits = net(img)
        loss = loss_fn(logits, lab, wmap)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        optimizer.step()

        pred = logits.data.cpu().numpy().argmax(1)
        hits += (pred == lab.data.cpu().numpy()).sum()
        pixels += pred.size
        total += loss.item() * img.size(0)
        seen += img.size(0)
    torch.cuda.empty_cache()
    return total / seen, hits / float(pixels)


def main():
    make_stacks(args.data, args.n_train, args.n_val, args.fov, args.cells)
    train_set = CellCrops(args.data, args.crop, args.sigma)
    loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True,
                        num_workers=args.workers, drop_last=True)
    fields = WholeFields(args.data)

    net = UNet(N_CLASSES, args.base, args.depth).to(device)
    optimizer = optim.SGD(net.parameters(), lr=args.lr, momentum=0.95, nesterov=True, weight_decay=1e-4)
    plateau = optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode='max', patience=8, factor=0.3)
    start, best = 0, 0.0
    if args.resume:
        ck = torch.load(args.resume, map_location=device)
        net.load_state_dict(ck['net'])
        optimizer.load_state_dict(ck['optimizer'])
        plateau.load_state_dict(ck['plateau'])
        start, best = ck['epoch'] + 1, ck['best']
    os.makedirs(args.out, exist_ok=True)
    log = open(os.path.join(args.out, 'log.tsv'), 'a')

    for epoch in range(start, args.epochs):
        t0 = time.time()
        loss, acc = train_epoch(net, loader, optimizer)
        iou = validate(net, fields)
        score = float(np.mean(iou[1:]))
        plateau.step(score)
        log.write('%d\t%.5f\t%.4f\t%.4f\n' % (epoch, loss, acc, score))
        log.flush()
        print('epoch %3d  loss %.4f  pixel acc %.3f  IoU %s  %.1fs'
              % (epoch, loss, acc, ' '.join('%.3f' % v for v in iou), time.time() - t0))
        state = {'net': net.state_dict(), 'optimizer': optimizer.state_dict(),
                 'plateau': plateau.state_dict(), 'epoch': epoch, 'best': max(best, score)}
        torch.save(state, os.path.join(args.out, 'last.pth'))
        if score > best:
            best = score
            torch.save(net.state_dict(), os.path.join(args.out, 'best.pth'))
    log.close()


if __name__ == '__main__':
    main()
