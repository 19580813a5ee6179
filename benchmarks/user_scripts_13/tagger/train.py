# -*- coding: utf-8 -*-
"""BiLSTM-CNN-CRF tagger (Ma & Hovy 2016).  Writes its corpus on the first run."""
from __future__ import print_function
import argparse
import os
import random
import time

import torch
import torch.nn as nn
import torch.optim as optim

import make_data
from data import read_conll, build_alphabets, to_ids, BatchIter
from model import Tagger

parser = argparse.ArgumentParser()
parser.add_argument('--corpus', default='corpus')
parser.add_argument('--n_train', type=int, default=14000)
parser.add_argument('--n_dev', type=int, default=3200)
parser.add_argument('--max_len', type=int, default=45)
parser.add_argument('--n_words', type=int, default=12000)
parser.add_argument('--batch_size', type=int, default=16)
parser.add_argument('--epochs', type=int, default=50)
parser.add_argument('--lr', type=float, default=0.015)
parser.add_argument('--lr_decay', type=float, default=0.05)
parser.add_argument('--momentum', type=float, default=0.9)
parser.add_argument('--clip', type=float, default=5.0)
parser.add_argument('--word_dim', type=int, default=100)
parser.add_argument('--char_dim', type=int, default=30)
parser.add_argument('--char_out', type=int, default=50)
parser.add_argument('--hidden', type=int, default=400)
parser.add_argument('--layers', type=int, default=2)
parser.add_argument('--dropout', type=float, default=0.5)
parser.add_argument('--word_drop', type=float, default=0.05)
parser.add_argument('--seed', type=int, default=42)
args = parser.parse_args()


def spans(tags):
    """BIO tags -> set of (kind, start, end)"""
    out, start, kind = set(), None, None
    for i, t in enumerate(list(tags) + ['O']):
        if start is not None and not t.startswith('I-'):
            out.add((kind, start, i))
            start = None
        if t.startswith('B-'):
            start, kind = i, t[2:]
    return out


def evaluate(model, batches, names):
    model.eval()
    hit, n_pred, n_gold, loss, n = 0, 0, 0, 0., 0
    for word, char, tag, mask, lengths in batches:
        loss += model(word, char, tag, mask, lengths).item()
        n += 1
        paths = model.decode(word, char, lengths)
        for b, path in enumerate(paths):
            gold = [names[tag[b, t].item()] for t in range(lengths[b])]
            p, g = spans([names[k] for k in path]), spans(gold)
            hit += len(p & g)
            n_pred += len(p)
            n_gold += len(g)
    prec, rec = hit / max(1, n_pred), hit / max(1, n_gold)
    return loss / n, 2 * prec * rec / max(1e-9, prec + rec)


def main():
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    gpu = torch.cuda.is_available()
    if not os.path.exists(args.corpus + '/train.conll'):
        make_data.write(args.corpus, args.n_train, args.n_dev, hi=args.max_len, n_words=args.n_words)
    train_s = read_conll(args.corpus + '/train.conll')
    dev_s = read_conll(args.corpus + '/dev.conll')
    words, chars, tags = build_alphabets(train_s)
    train = BatchIter(to_ids(train_s, words, chars, tags), args.batch_size, True, gpu)
    dev = BatchIter(to_ids(dev_s, words, chars, tags), args.batch_size, False, gpu)
    print('%d train / %d dev sentences, %d words, %d chars, tags %s' % (
        len(train_s), len(dev_s), len(words), len(chars), ' '.join(tags.items[1:])))

    model = Tagger(args, len(words), len(chars), tags.items)
    if gpu:
        model = model.cuda()
    optimizer = optim.SGD(model.parameters(), lr=args.lr, momentum=args.momentum)
    best = -1
    for epoch in range(args.epochs):
        model.train()
        for g in optimizer.param_groups:
            g['lr'] = args.lr / (1 + args.lr_decay * epoch)
        t0, total, toks = time.time(), 0., 0
        for i, (word, char, tag, mask, lengths) in enumerate(train):
            model.zero_grad()
            loss = model(word, char, tag, mask, lengths)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            optimizer.step()
            total += loss.item()
            toks += int(mask.sum())
            if (i + 1) % 100 == 0:
                print('  batch %d/%d loss %.3f' % (i + 1, len(train), total / (i + 1)))
        sec = time.time() - t0
        dev_loss, f1 = evaluate(model, dev, tags.items)
        print('epoch %d: loss %.3f, dev loss %.3f, dev F1 %.4f, %.0f words/s' % (
            epoch, total / len(train), dev_loss, f1, toks / sec))
        if f1 > best:
            best = f1
            torch.save(model.state_dict(), 'best.pt')
    print('best dev F1 %.4f' % best)


if __name__ == '__main__':
    main()
