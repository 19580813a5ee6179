import argparse
import logging
import math
import os
import random

import numpy as np
import torch
import torch.nn as nn
from torch.optim import Adam
from torch.optim.lr_scheduler import LambdaLR

from featurization import BatchMolGraph, MolGraph
from model import MoleculeModel
from molecules import read_molecules, write_molecules

log = logging.getLogger('train')


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument('--data_path', default='molecules.jsonl')
    p.add_argument('--save_dir', default='checkpoints')
    p.add_argument('--n_molecules', type=int, default=60000)
    p.add_argument('--min_atoms', type=int, default=8)
    p.add_argument('--max_atoms', type=int, default=32)
    p.add_argument('--batch_size', type=int, default=50)
    p.add_argument('--epochs', type=int, default=40)
    p.add_argument('--hidden_size', type=int, default=300)
    p.add_argument('--ffn_size', type=int, default=300)
    p.add_argument('--depth', type=int, default=4)
    p.add_argument('--dropout', type=float, default=0.05)
    p.add_argument('--init_lr', type=float, default=1e-4)
    p.add_argument('--max_lr', type=float, default=1e-3)
    p.add_argument('--final_lr', type=float, default=1e-4)
    p.add_argument('--warmup_epochs', type=float, default=2.0)
    p.add_argument('--ensemble_size', type=int, default=3)
    p.add_argument('--task_weights', type=float, nargs='+', default=[1.0, 1.0, 0.5])
    p.add_argument('--log_frequency', type=int, default=100)
    p.add_argument('--seed', type=int, default=0)
    p.add_argument('--threads', type=int, default=0)
    args = p.parse_args()
    args.device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    return args


class StandardScaler(object):
    def __init__(self, targets):
        y = np.array(targets, dtype=float)               # None becomes nan
        self.mean = np.nanmean(y, axis=0)
        self.std = np.nanstd(y, axis=0)

    def transform(self, targets):
        y = (np.array(targets, dtype=float) - self.mean) / self.std
        return [[None if math.isnan(v) else float(v) for v in row] for row in y]

    def inverse(self, preds):
        return np.array(preds) * self.std + self.mean


def param_norm(model):
    return math.sqrt(sum(p.norm().item() ** 2 for p in model.parameters()))


def noam(args, steps_per_epoch):
    warm = int(args.warmup_epochs * steps_per_epoch)
    total = args.epochs * steps_per_epoch
    gamma = (args.final_lr / args.max_lr) ** (1.0 / max(1, total - warm))

    def factor(step):
        if step < warm:
            return (args.init_lr + step * (args.max_lr - args.init_lr) / warm) / args.max_lr
        return gamma ** (step - warm)
    return factor


def train(model, data, loss_func, optimizer, scheduler, args, n_iter):
    model.train()
    random.shuffle(data)
    loss_sum, count = 0.0, 0
    for i in range(0, len(data) - args.batch_size + 1, args.batch_size):
        batch = data[i:i + args.batch_size]
        graph = BatchMolGraph([MolGraph(mol) for mol, _ in batch])
        target = [y for _, y in batch]

        mask = torch.Tensor([[v is not None for v in row] for row in target])
        targets = torch.Tensor([[0 if v is None else v for v in row] for row in target])
        weights = torch.Tensor(args.task_weights)
        if next(model.parameters()).is_cuda:
            mask, targets, weights = mask.cuda(), targets.cuda(), weights.cuda()

        model.zero_grad()
        preds = model(graph, args.device)
        loss = loss_func(preds, targets) * weights * mask
        loss = loss.sum() / mask.sum()
        loss.backward(retain_graph=True)
        optimizer.step()
        scheduler.step()

        loss_sum += loss.item()
        count += 1
        n_iter += 1
        if n_iter % args.log_frequency == 0:
            log.info('step %d  loss %.4f  PNorm %.3f  lr %.2e', n_iter, loss_sum / count,
                     param_norm(model), scheduler.get_last_lr()[0])
            loss_sum, count = 0.0, 0
    return n_iter


def predict(model, data, scaler, args):
    model.eval()
    preds = []
    for i in range(0, len(data), args.batch_size):
        graph = BatchMolGraph([MolGraph(mol) for mol, _ in data[i:i + args.batch_size]])
        with torch.no_grad():
            p = model(graph, args.device)
        preds.extend(scaler.inverse(p.data.cpu().numpy()).tolist())
    return preds


def rmse(preds, data):
    out = []
    for t in range(len(preds[0])):
        e = [(p[t] - y[t]) ** 2 for p, (_, y) in zip(preds, data) if y[t] is not None]
        out.append(math.sqrt(sum(e) / max(len(e), 1)))
    return out


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format='%(message)s')
    if args.threads:
        torch.set_num_threads(args.threads)
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    write_molecules(args.data_path, args.n_molecules, args.min_atoms, args.max_atoms)
    mols = read_molecules(args.data_path)
    data = [(m, m['y']) for m in mols]
    random.shuffle(data)
    a, b = int(0.8 * len(data)), int(0.9 * len(data))
    train_data, val_data, test_data = data[:a], data[a:b], data[b:]
    scaler = StandardScaler([y for _, y in train_data])
    train_scaled = list(zip([m for m, _ in train_data], scaler.transform([y for _, y in train_data])))
    os.makedirs(args.save_dir, exist_ok=True)

    sum_preds = np.zeros((len(test_data), len(args.task_weights)))
    for k in range(args.ensemble_size):
        torch.manual_seed(args.seed + k)
        model = MoleculeModel(args, len(args.task_weights)).to(args.device)
        if k == 0:
            log.info('%d parameters', sum(p.numel() for p in model.parameters()))
        loss_func = nn.MSELoss(reduction='none')
        optimizer = Adam(model.parameters(), lr=args.max_lr)
        scheduler = LambdaLR(optimizer, noam(args, len(train_data) // args.batch_size))
        path = os.path.join(args.save_dir, 'model_%d.pt' % k)
        best, n_iter = float('inf'), 0
        for epoch in range(args.epochs):
            n_iter = train(model, train_scaled, loss_func, optimizer, scheduler, args, n_iter)
            score = rmse(predict(model, val_data, scaler, args), val_data)
            log.info('model %d epoch %d  val RMSE %s', k, epoch, ' '.join('%.3f' % s for s in score))
            if np.mean(score) < best:
                best = np.mean(score)
                torch.save({'state_dict': model.state_dict(), 'args': vars(args), 'mean': scaler.mean,
                            'std': scaler.std}, path)
        model.load_state_dict(torch.load(path, map_location=args.device, weights_only=False)['state_dict'])
        preds = np.array(predict(model, test_data, scaler, args))
        log.info('model %d test RMSE %s', k, ' '.join('%.3f' % s for s in rmse(preds, test_data)))
        sum_preds += preds
    ens = rmse(sum_preds / args.ensemble_size, test_data)
    log.info('ensemble test RMSE %s', ' '.join('%.3f' % s for s in ens))


if __name__ == '__main__':
    main()
