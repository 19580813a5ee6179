# -*- coding: utf-8 -*-
# code for the workshop paper, tested with pytorch 0.3.1 / 0.4
from __future__ import print_function

import argparse
import random
import time

import numpy as np
import torch
import torch.optim as optim
from torch.autograd import Variable

from data import BatchIter, TAGS, gen_corpus
from model import BiLSTM_CRF

parser = argparse.ArgumentParser()
parser.add_argument('--epochs', type=int, default=3)
parser.add_argument('--batch_size', type=int, default=32)
parser.add_argument('--lr', type=float, default=0.01)
parser.add_argument('--hidden', type=int, default=128)
parser.add_argument('--embed', type=int, default=64)
parser.add_argument('--n_train', type=int, default=1200)
parser.add_argument('--clip', type=float, default=5.0)
parser.add_argument('--no_cuda', action='store_true')
parser.add_argument('--seed', type=int, default=1234)
args = parser.parse_args()

use_cuda = torch.cuda.is_available() and not args.no_cuda
random.seed(args.seed)
np.random.seed(args.seed)
torch.manual_seed(args.seed)
if use_cuda:
    torch.cuda.manual_seed(args.seed)
    torch.backends.cudnn.enabled = True


def to_var(x, volatile=False):
    # x = Variable(x, volatile=volatile)   # 0.3
    x = Variable(x)
    if use_cuda:
        x = x.cuda()
    return x


def make_mask(lens, T):
    mask = torch.zeros(len(lens), T)
    for i, l in enumerate(lens):
        mask[i, :l] = 1
    return to_var(mask)


def evaluate(model, it):
    model.eval()
    correct, total = 0, 0
    loss_sum = 0
    for words, tags, lens in it:
        w = to_var(torch.from_numpy(words), volatile=True)
        t = to_var(torch.from_numpy(tags), volatile=True)
        mask = make_mask(lens, words.shape[1])
        loss_sum += model.neg_log_lik(w, t, lens, mask)
        paths = model.decode(w, lens)
        for i, p in enumerate(paths):
            correct += int((np.array(p) == tags[i, :lens[i]]).sum())
            total += lens[i]
    model.train()
    return loss_sum.data.cpu().numpy() / len(it), 100.0 * correct / total


def main():
    train = BatchIter(gen_corpus(args.n_train, seed=1), args.batch_size)
    dev = BatchIter(gen_corpus(200, seed=2), args.batch_size, shuffle=False)

    model = BiLSTM_CRF(800, args.embed, args.hidden, len(TAGS), use_cuda)
    if use_cuda:
        model.cuda()
    params = filter(lambda p: p.requires_grad, model.parameters())
    optimizer = optim.Adam(params, lr=args.lr)

    best = 0
    for epoch in range(args.epochs):
        t0 = time.time()
        total_loss = 0
        for step, (words, tags, lens) in enumerate(train):
            w = to_var(torch.from_numpy(words))
            t = to_var(torch.from_numpy(tags))
            mask = make_mask(lens, words.shape[1])

            optimizer.zero_grad()
            loss = model.neg_log_lik(w, t, lens, mask)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            optimizer.step()
            total_loss += loss.data.cpu().numpy()

            if step % 10 == 0:
                print('| epoch %d | step %3d/%3d | loss %.4f' % (epoch, step, len(train), loss.item()))

        dev_loss, acc = evaluate(model, dev)
        print('-' * 60)
        print('| end of epoch %d | %.1fs | train %.4f | dev %.4f | acc %.2f' % (
            epoch, time.time() - t0, total_loss / len(train), dev_loss, acc))
        print('-' * 60)
        if acc > best:
            best = acc
            torch.save(model.state_dict(), 'best.pt')
        else:
            # the learning rate schedule of (Ma & Hovy)
            for g in optimizer.param_groups:
                g['lr'] *= 0.5


if __name__ == '__main__':
    main()
