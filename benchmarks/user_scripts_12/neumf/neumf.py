# -*- coding: utf-8 -*-
"""
Neural collaborative filtering (He et al., WWW 2017), my pytorch port.
data: ml-1m leave-one-out if --ratings is given (user::item::rating::time), else look-alike random data.
"""
from __future__ import print_function

import argparse
import heapq
import math
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
import torch.utils.data as data
from torch.autograd import Variable

parser = argparse.ArgumentParser(description='NeuMF')
parser.add_argument('--ratings', type=str, default='')
parser.add_argument('--users', type=int, default=6040)
parser.add_argument('--items', type=int, default=3706)
parser.add_argument('--per_user', type=int, default=165)
parser.add_argument('--num_ng', type=int, default=4, help='negatives per positive')
parser.add_argument('--test_ng', type=int, default=99)
parser.add_argument('--factor_num', type=int, default=32)
parser.add_argument('--num_layers', type=int, default=3)
parser.add_argument('--dropout', type=float, default=0.1)
parser.add_argument('--batch_size', type=int, default=256)
parser.add_argument('--epochs', type=int, default=20)
parser.add_argument('--lr', type=float, default=0.001)
parser.add_argument('--reg', type=float, default=1e-6)
parser.add_argument('--top_k', type=int, default=10)
parser.add_argument('--workers', type=int, default=4)
parser.add_argument('--seed', type=int, default=42)
args = parser.parse_args()

random.seed(args.seed)
np.random.seed(args.seed)
torch.manual_seed(args.seed)
cuda = torch.cuda.is_available()
if cuda:
    torch.cuda.manual_seed(args.seed)


############################## data ##############################
def load_ratings(path):
    per_user = {}
    with open(path) as f:
        for line in f:
            u, i, r, t = line.strip().split('::')
            per_user.setdefault(int(u), []).append((int(t), int(i)))
    items = sorted(set(i for v in per_user.values() for _, i in v))
    remap = dict((i, k) for k, i in enumerate(items))
    return [[remap[i] for _, i in sorted(per_user[u])] for u in sorted(per_user)], len(items)


def fake_ratings(users, items, per_user):
    rng = np.random.RandomState(17)
    taste = rng.randn(users, 6)
    genre = rng.randn(items, 6)
    popular = -0.7 * np.log(np.arange(1, items + 1))
    rows = []
    for u in range(users):
        score = popular + 1.3 * genre.dot(taste[u]) + rng.gumbel(size=items)
        n = min(items // 2, max(5, int(rng.exponential(per_user))))
        rows.append(rng.permutation(np.argsort(-score)[:n]).tolist())
    return rows, items


class NCFData(data.Dataset):
    def __init__(self, features, num_item, train_set=None, num_ng=0, is_training=None):
        super(NCFData, self).__init__()
        self.features_ps = features
        self.num_item = num_item
        self.train_set = train_set
        self.num_ng = num_ng
        self.is_training = is_training
        self.labels = [0 for _ in range(len(features))]

    def ng_sample(self):
        assert self.is_training, 'no need to sample when testing'
        self.features_ng = []
        for x in self.features_ps:
            u = x[0]
            for t in range(self.num_ng):
                j = np.random.randint(self.num_item)
                while (u, j) in self.train_set:
                    j = np.random.randint(self.num_item)
                self.features_ng.append([u, j])
        labels_ps = [1 for _ in range(len(self.features_ps))]
        labels_ng = [0 for _ in range(len(self.features_ng))]
        self.features_fill = self.features_ps + self.features_ng
        self.labels_fill = labels_ps + labels_ng

    def __len__(self):
        return (self.num_ng + 1) * len(self.labels)

    def __getitem__(self, idx):
        features = self.features_fill if self.is_training else self.features_ps
        labels = self.labels_fill if self.is_training else self.labels
        user, item = features[idx]
        return user, item, labels[idx]


############################## model ##############################
class NeuMF(nn.Module):
    def __init__(self, user_num, item_num, factor_num, num_layers, dropout):
        super(NeuMF, self).__init__()
        big = factor_num * 2 ** (num_layers - 1)
        self.embed_user_GMF = nn.Embedding(user_num, factor_num)
        self.embed_item_GMF = nn.Embedding(item_num, factor_num)
        self.embed_user_MLP = nn.Embedding(user_num, big)
        self.embed_item_MLP = nn.Embedding(item_num, big)
        layers = []
        for i in range(num_layers):
            n = factor_num * (2 ** (num_layers - i))
            layers += [nn.Dropout(p=dropout), nn.Linear(n, n // 2), nn.ReLU()]
        self.MLP_layers = nn.Sequential(*layers)
        self.predict_layer = nn.Linear(factor_num * 2, 1)
        for m in self.modules():
            if isinstance(m, nn.Embedding):
                nn.init.normal_(m.weight, std=0.01)
            elif isinstance(m, nn.Linear):
                nn.init.xavier_uniform_(m.weight)
                m.bias.data.zero_()

    def forward(self, user, item):
        gmf = self.embed_user_GMF(user) * self.embed_item_GMF(item)
        mlp = self.MLP_layers(torch.cat((self.embed_user_MLP(user), self.embed_item_MLP(item)), -1))
        return F.sigmoid(self.predict_layer(torch.cat((gmf, mlp), -1))).view(-1)

    def reg_loss(self, user, item):
        loss = 0
        for emb, idx in ((self.embed_user_GMF, user), (self.embed_item_GMF, item),
                         (self.embed_user_MLP, user), (self.embed_item_MLP, item)):
            loss = loss + emb(idx).pow(2).sum()
        return loss


############################## evaluation ##############################
def evaluate_user(model, user, pos, negs, top_k):
    items = [pos] + negs
    u = Variable(torch.LongTensor([user] * len(items)))
    i = Variable(torch.LongTensor(items))
    if cuda:
        u, i = u.cuda(), i.cuda()
    scores = model(u, i).data.cpu().numpy()
    item_score = dict((it, s) for it, s in zip(items, scores))
    ranklist = heapq.nlargest(top_k, item_score, key=item_score.get)
    if pos in ranklist:
        return 1, math.log(2) / math.log(ranklist.index(pos) + 2)
    return 0, 0


def evaluate(model, test_data, top_k):
    HR, NDCG = [], []
    for user, (pos, negs) in enumerate(test_data):
        hr, ndcg = evaluate_user(model, user, pos, negs, top_k)
        HR.append(hr)
        NDCG.append(ndcg)
    return np.mean(HR), np.mean(NDCG)


############################## main ##############################
rows, item_num = load_ratings(args.ratings) if args.ratings else fake_ratings(args.users, args.items, args.per_user)
user_num = len(rows)
train_data, test_data, train_set = [], [], set()
for u, row in enumerate(rows):
    for i in row[:-1]:
        train_data.append([u, i])
        train_set.add((u, i))
for u, row in enumerate(rows):
    negs = []
    while len(negs) < args.test_ng:
        j = np.random.randint(item_num)
        if j != row[-1] and (u, j) not in train_set:
            negs.append(j)
    test_data.append((row[-1], negs))
print('users %d  items %d  ratings %d' % (user_num, item_num, len(train_data)))

train_dataset = NCFData(train_data, item_num, train_set, args.num_ng, True)
train_loader = data.DataLoader(train_dataset, batch_size=args.batch_size, shuffle=True, num_workers=args.workers)

model = NeuMF(user_num, item_num, args.factor_num, args.num_layers, args.dropout)
loss_function = nn.BCELoss()
if cuda:
    model.cuda()
    loss_function.cuda()
optimizer = optim.Adam(model.parameters(), lr=args.lr)

best_hr, best_ndcg, best_epoch = 0, 0, -1
for epoch in range(args.epochs):
    start_time = time.time()
    train_loader.dataset.ng_sample()
    ng_time = time.time() - start_time
    model.train()
    total, count, correct = 0.0, 0, 0
    for user, item, label in train_loader:
        user, item, label = Variable(user), Variable(item), Variable(label.float())
        if cuda:
            user, item, label = user.cuda(), item.cuda(), label.cuda()
        model.zero_grad()
        prediction = model(user, item)
        loss = loss_function(prediction, label) + args.reg * model.reg_loss(user, item)
        loss.backward()
        optimizer.step()
        total += loss.data.item() * len(label)
        correct += ((prediction > 0.5).float() == label).sum().item()
        count += len(label)

    model.eval()
    HR, NDCG = evaluate(model, test_data, args.top_k)
    print('epoch %02d  loss %.4f  acc %.4f  HR %.4f  NDCG %.4f  [%.1f s, sampling %.1f s]' % (
        epoch, total / count, float(correct) / count, HR, NDCG, time.time() - start_time, ng_time))
    if HR > best_hr:
        best_hr, best_ndcg, best_epoch = HR, NDCG, epoch
        torch.save(model.state_dict(), 'neumf.pth')
    # the paper stops when HR has not moved for five epochs
    if epoch - best_epoch >= 5:
        break
print('End. Best epoch %02d: HR = %.4f, NDCG = %.4f' % (best_epoch, best_hr, best_ndcg))
