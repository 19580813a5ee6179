# -*- coding: utf-8 -*-
# LSTM + attention for topic classification
import argparse
import os
import random

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from torch.autograd import Variable
from torch.utils.data import DataLoader

from make_corpus import make_corpus
from model import LSTMClassifier
from text_data import NewsDataset, Vocab, collate_fn, read_tsv

parser = argparse.ArgumentParser()
parser.add_argument('--data', default='corpus')
parser.add_argument('--n_train', type=int, default=60000)
parser.add_argument('--n_test', type=int, default=6000)
parser.add_argument('--max_len', type=int, default=200)
parser.add_argument('--embed', type=int, default=200)
parser.add_argument('--hidden', type=int, default=256)
parser.add_argument('--batch', type=int, default=64)
parser.add_argument('--epochs', type=int, default=10)
parser.add_argument('--lr', type=float, default=0.001)
parser.add_argument('--seed', type=int, default=1)
opt = parser.parse_args()
print(opt)

use_cuda = torch.cuda.is_available()
random.seed(opt.seed)
np.random.seed(opt.seed)
torch.manual_seed(opt.seed)
if use_cuda:
    torch.cuda.manual_seed(opt.seed)

if not os.path.exists(os.path.join(opt.data, 'train.tsv')):
    print('making corpus ...')
    make_corpus(opt.data, opt.n_train, opt.n_test, max_len=opt.max_len)

train_labels, train_texts = read_tsv(os.path.join(opt.data, 'train.tsv'))
test_labels, test_texts = read_tsv(os.path.join(opt.data, 'test.tsv'))
classes = sorted(set(train_labels))
vocab = Vocab(train_texts)
print('vocab size %d, classes %s' % (len(vocab), classes))

train_data = NewsDataset(train_labels, train_texts, vocab, classes)
test_data = NewsDataset(test_labels, test_texts, vocab, classes)
train_loader = DataLoader(train_data, batch_size=opt.batch, shuffle=True, collate_fn=collate_fn)
test_loader = DataLoader(test_data, batch_size=opt.batch, shuffle=False, collate_fn=collate_fn)

model = LSTMClassifier(len(vocab), len(classes), opt.embed, opt.hidden)
if use_cuda:
    model = model.cuda()
criterion = nn.CrossEntropyLoss()
optimizer = optim.Adam(model.parameters(), lr=opt.lr)
scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.5)
loss_file = open('losses.txt', 'w')


def train(epoch):
    model.train()
    total_loss = 0
    correct = 0
    for batch_idx, (inputs, lengths, labels) in enumerate(train_loader):
        inputs, labels = Variable(inputs), Variable(labels)
        if use_cuda:
            inputs, lengths, labels = inputs.cuda(), lengths.cuda(), labels.cuda()

        optimizer.zero_grad()
        output = model(inputs, lengths)
        loss = criterion(output, labels)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5)
        optimizer.step()

        total_loss += loss
        pred = output.data.max(1)[1]
        correct += pred.eq(labels.data).cpu().sum()
        loss_file.write('%f\n' % loss.item())

        if batch_idx % 20 == 0:
            print('Train Epoch: {} [{}/{} ({:.0f}%)]\tLoss: {:.6f}'.format(
                epoch, batch_idx * opt.batch, len(train_data),
                100. * batch_idx / len(train_loader), loss.item()))
    print('Train Epoch: {} Average loss: {:.4f} Accuracy: {:.2f}%'.format(
        epoch, float(total_loss) / len(train_loader), 100. * float(correct) / len(train_data)))


def test():
    model.eval()
    test_loss = 0
    correct = 0
    confusion = np.zeros((len(classes), len(classes)), dtype=int)
    for inputs, lengths, labels in test_loader:
        inputs, labels = Variable(inputs, volatile=True), Variable(labels)
        if use_cuda:
            inputs, lengths, labels = inputs.cuda(), lengths.cuda(), labels.cuda()
        output = model(inputs, lengths)
        test_loss += criterion(output, labels).item() * labels.size(0)
        predicted = output.data.max(1)[1]
        for i in range(labels.size(0)):
            confusion[int(labels[i]), int(predicted[i])] += 1
            if predicted[i] == labels[i]:
                correct += 1
    test_loss /= len(test_data)
    acc = 100. * correct / len(test_data)
    print('Test set: Average loss: {:.4f}, Accuracy: {}/{} ({:.2f}%)'.format(
        test_loss, correct, len(test_data), acc))
    return acc, confusion


def predict(text):
    model.eval()
    ids = torch.LongTensor([vocab.encode(text)])
    lengths = torch.LongTensor([ids.size(1)])
    if use_cuda:
        ids = ids.cuda()
    with torch.no_grad():
        output = model(ids, lengths)
    return classes[output.max(1)[1].item()]


best_acc = 0
for epoch in range(1, opt.epochs + 1):
    train(epoch)
    acc, confusion = test()
    scheduler.step()
    if acc > best_acc:
        best_acc = acc
        torch.save(model.state_dict(), 'model.pt')

print('best accuracy %.2f' % best_acc)
print('confusion matrix (rows: true)')
for i in range(len(classes)):
    print('%10s %s' % (classes[i], ' '.join('%5d' % n for n in confusion[i])))
for s in ['The coach said the team will win the final', 'Bank says inflation and debt growth']:
    print(s, '->', predict(s))
