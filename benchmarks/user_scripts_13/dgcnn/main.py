"""
Dynamic graph CNN on synthetic surfaces; after the authors' ModelNet40 script.
"""
from __future__ import print_function
import os
import argparse
import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader

from data import Surfaces, NAMES
from model import DGCNN, cal_loss


class IOStream():
    def __init__(self, path):
        self.f = open(path, 'a')

    def cprint(self, text):
        print(text)
        self.f.write(text + '\n')
        self.f.flush()


def class_accuracy(true, pred):
    return np.mean([np.mean(pred[true == c] == c) for c in np.unique(true)])


def train(args, io):
    train_loader = DataLoader(Surfaces(args.num_points, 'train', args.n_train), num_workers=args.workers,
                              batch_size=args.batch_size, shuffle=True, drop_last=True)
    test_loader = DataLoader(Surfaces(args.num_points, 'test', args.n_test), num_workers=args.workers,
                             batch_size=args.test_batch_size, shuffle=False, drop_last=False)
    device = torch.device("cuda" if args.cuda else "cpu")

    model = DGCNN(args, len(NAMES)).to(device)
    io.cprint(str(sum(p.numel() for p in model.parameters())) + ' parameters')
    model = nn.DataParallel(model)
    if args.use_sgd:
        opt = optim.SGD(model.parameters(), lr=args.lr * 100, momentum=args.momentum, weight_decay=1e-4)
    else:
        opt = optim.Adam(model.parameters(), lr=args.lr, weight_decay=1e-4)
    scheduler = CosineAnnealingLR(opt, args.epochs, eta_min=args.lr)

    best_test_acc = 0
    for epoch in range(args.epochs):
        train_loss, count = 0.0, 0.0
        model.train()
        train_pred, train_true = [], []
        for data, label in train_loader:
            data, label = data.to(device), label.to(device).squeeze(1)
            data = data.permute(0, 2, 1)
            batch_size = data.size()[0]
            opt.zero_grad()
            logits = model(data)
            loss = cal_loss(logits, label)
            loss.backward()
            opt.step()
            preds = logits.max(dim=1)[1]
            count += batch_size
            train_loss += loss.item() * batch_size
            train_true.append(label.cpu().numpy())
            train_pred.append(preds.detach().cpu().numpy())
        scheduler.step()
        train_true, train_pred = np.concatenate(train_true), np.concatenate(train_pred)
        io.cprint('Train %d, loss: %.6f, train acc: %.6f, train avg acc: %.6f' % (
            epoch, train_loss / count, np.mean(train_true == train_pred), class_accuracy(train_true, train_pred)))

        test_loss, true, pred = test(model, test_loader, device)
        test_acc = np.mean(true == pred)
        io.cprint('Test %d, loss: %.6f, test acc: %.6f, test avg acc: %.6f' % (
            epoch, test_loss, test_acc, class_accuracy(true, pred)))
        if test_acc >= best_test_acc:
            best_test_acc = test_acc
            torch.save(model.state_dict(), 'checkpoints/%s/model.t7' % args.exp_name)
    if args.votes > 0:
        vote(args, io, model, test_loader, device)


def test(model, loader, device):
    model.eval()
    test_loss, count = 0.0, 0.0
    test_pred, test_true = [], []
    for data, label in loader:
        data, label = data.to(device), label.to(device).squeeze(1)
        data = data.permute(0, 2, 1)
        batch_size = data.size()[0]
        logits = model(data)
        loss = cal_loss(logits, label)
        preds = logits.max(dim=1)[1]
        count += batch_size
        test_loss += loss.item() * batch_size
        test_true.append(label.cpu().numpy())
        test_pred.append(preds.detach().cpu().numpy())
    return test_loss / count, np.concatenate(test_true), np.concatenate(test_pred)


def vote(args, io, model, loader, device):
    """Mean of the probabilities over random scalings, once after training"""
    model.eval()
    hits, n = 0, 0
    with torch.no_grad():
        for data, label in loader:
            data, label = data.to(device), label.to(device).squeeze(1)
            prob = torch.zeros(data.size(0), len(NAMES), device=device)
            for v in range(args.votes):
                scale = torch.empty(1, 1, 3, device=device).uniform_(2. / 3., 3. / 2.)
                prob += torch.softmax(model((data * scale).permute(0, 2, 1)), 1)
            hits += (prob.argmax(1) == label).sum().item()
            n += label.size(0)
    io.cprint('Voting over %d scalings, test acc: %.6f' % (args.votes, hits / float(n)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description='Point Cloud Recognition')
    parser.add_argument('--exp_name', type=str, default='exp')
    parser.add_argument('--batch_size', type=int, default=32)
    parser.add_argument('--test_batch_size', type=int, default=16)
    parser.add_argument('--epochs', type=int, default=250)
    parser.add_argument('--n_train', type=int, default=9840)
    parser.add_argument('--n_test', type=int, default=2468)
    parser.add_argument('--workers', type=int, default=8)
    parser.add_argument('--threads', type=int, default=4, help='for the CPU part')
    parser.add_argument('--use_sgd', type=lambda s: s != 'False', default=True)
    parser.add_argument('--lr', type=float, default=0.001, help='0.1 if using sgd')
    parser.add_argument('--momentum', type=float, default=0.9)
    parser.add_argument('--num_points', type=int, default=1024)
    parser.add_argument('--k', type=int, default=20)
    parser.add_argument('--width', type=int, default=64)
    parser.add_argument('--emb_dims', type=int, default=1024)
    parser.add_argument('--dropout', type=float, default=0.5)
    parser.add_argument('--votes', type=int, default=10)
    parser.add_argument('--seed', type=int, default=1)
    args = parser.parse_args()

    os.makedirs('checkpoints/' + args.exp_name, exist_ok=True)
    io = IOStream('checkpoints/' + args.exp_name + '/run.log')
    io.cprint(str(args))
    args.cuda = torch.cuda.is_available()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    train(args, io)
