from __future__ import division, print_function

import argparse
import os
import random

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from data import N_CLASSES, SpeechCommands, make_corpus
from model import DSCNN


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument('--root', default='speech_commands')
    p.add_argument('--per-word', type=int, default=2400)
    p.add_argument('--noise-seconds', type=int, default=60)
    p.add_argument('--batch-size', type=int, default=100)
    p.add_argument('--epochs', type=int, default=60)
    p.add_argument('--lr', type=float, default=0.05)
    p.add_argument('--lr-step', type=int, default=20)
    p.add_argument('--wd', type=float, default=1e-4)
    p.add_argument('--smooth', type=float, default=0.1)
    p.add_argument('--channels', type=int, default=276)
    p.add_argument('--blocks', type=int, default=5)
    p.add_argument('--seed', type=int, default=1234)
    p.add_argument('--save', default='ckpt')
    return p.parse_args()


def seed_everything(seed):
    random.seed(seed)
    os.environ['PYTHONHASHSEED'] = str(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)
    torch.backends.cudnn.deterministic = True


def spec_augment(x, max_t=20, max_f=8):
    """One time and one frequency mask per clip, in place."""
    for i in range(x.size(0)):
        t = random.randint(0, max_t)
        t0 = random.randint(0, x.size(2) - t)
        x[i, :, t0:t0 + t, :] = 0
        f = random.randint(0, max_f)
        f0 = random.randint(0, x.size(3) - f)
        x[i, :, :, f0:f0 + f] = 0
    return x


def smooth_labels(y, eps):
    t = torch.zeros(y.size(0), N_CLASSES)
    t.fill_(eps / (N_CLASSES - 1))
    t.scatter_(1, y.unsqueeze(1), 1 - eps)
    return t


def grad_norm(model):
    total = 0.
    for p in model.parameters():
        if p.grad is not None:
            total += p.grad.data.norm(2).item() ** 2
    return total ** 0.5


def train_epoch(model, loader, optimizer, device, args):
    model.train()
    loss_sum, correct, seen, worst = 0., 0, 0, 0.
    for x, y in loader:
        target = smooth_labels(y, args.smooth).to(device)
        x, y = x.to(device), y.to(device)
        x = spec_augment(x)
        optimizer.zero_grad()
        logits = model(x)
        loss = -(target * F.log_softmax(logits, 1)).sum(1).mean()
        loss.backward()
        worst = max(worst, grad_norm(model))
        optimizer.step()

        loss_sum += loss.item() * y.size(0)
        correct += (logits.max(1)[1] == y).sum().item()
        seen += y.size(0)
    return loss_sum / seen, correct / seen, worst


def evaluate(model, loader, device):
    model.eval()
    confusion = np.zeros((N_CLASSES, N_CLASSES), dtype=np.int64)
    loss_sum = 0.
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        logits = model(x)
        loss_sum += F.cross_entropy(logits, y, reduction='sum').item()
        pred = logits.argmax(1)
        for t, p in zip(y, pred):
            confusion[t.item(), p.item()] += 1
    recall = confusion.diagonal() / np.maximum(1, confusion.sum(1))
    return loss_sum / confusion.sum(), confusion.trace() / confusion.sum(), recall


def main():
    args = get_args()
    seed_everything(args.seed)
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    make_corpus(args.root, args.per_word, args.noise_seconds)
    os.makedirs(args.save, exist_ok=True)

    train_set = SpeechCommands(args.root, 'train')
    val_set = SpeechCommands(args.root, 'val')
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True, drop_last=True)
    val_loader = DataLoader(val_set, batch_size=args.batch_size)

    model = DSCNN(N_CLASSES, args.channels, args.blocks).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=args.wd)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, args.lr_step, 0.1)

    best = 0.
    for epoch in range(args.epochs):
        train_set.set_epoch(epoch)      # other 'unknown' clips in every epoch
        loss, acc, worst = train_epoch(model, train_loader, optimizer, device, args)
        vloss, vacc, recall = evaluate(model, val_loader, device)
        scheduler.step()
        print('epoch %2d  loss %.6f  acc %.4f  |g| %.4f  val loss %.6f  acc %.4f  worst class %.3f'
              % (epoch, loss, acc, worst, vloss, vacc, recall.min()))
        if vacc > best:
            best = vacc
            torch.save(model.state_dict(), os.path.join(args.save, 'best.pt'))
    print('best val acc %.4f' % best)


if __name__ == '__main__':
    main()
