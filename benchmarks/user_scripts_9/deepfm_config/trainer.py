import time

import numpy as np
import torch
import torch.nn as nn


def roc_auc(y_true, y_score):
    order = np.argsort(y_score, kind='mergesort')
    ranks = np.empty(len(order), dtype=np.float64)
    ranks[order] = np.arange(1, len(order) + 1)
    pos = y_true > 0.5
    n_pos, n_neg = pos.sum(), (~pos).sum()
    if n_pos == 0 or n_neg == 0:
        return 0.5
    return (ranks[pos].sum() - n_pos * (n_pos + 1) / 2) / (n_pos * n_neg)


class Trainer:
    def __init__(self, model, loaders, cfg):
        self.cfg = cfg
        self.device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
        self.model = model.to(self.device)
        self.loaders = loaders
        self.criterion = nn.BCELoss()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=cfg['lr'])
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, gamma=0.9)
        self.best_auc, self.best_state, self.bad = 0.0, None, 0

    def l2_penalty(self):
        reg = torch.tensor(0.).to(self.device)
        for p in self.model.parameters():
            reg = reg + torch.sum(p ** 2)
        return self.cfg['l2'] * reg

    def train_epoch(self, epoch):
        self.model.train()
        total, aucs = 0.0, []
        for step, (sparse, dense, label) in enumerate(self.loaders['train']):
            sparse = sparse.to(self.device)
            dense = dense.to(self.device)
            label = label.to(self.device)
            pred = self.model(sparse, dense)
            loss = self.criterion(pred, label) + self.l2_penalty()
            self.optimizer.zero_grad(set_to_none=False)
            loss.backward()
            self.optimizer.step()
            total += loss.item()
            aucs.append(roc_auc(label.cpu().numpy(), pred.detach().cpu().numpy()))
            if (step + 1) % self.cfg['log_every'] == 0:
                print('epoch %d step %d loss %.5f batch auc %.4f' % (epoch, step + 1, total / (step + 1), np.mean(aucs[-5:])))
        self.scheduler.step()
        return total / len(self.loaders['train'])

    def evaluate(self, split):
        self.model.eval()
        preds, labels = [], []
        loss = 0
        for sparse, dense, label in self.loaders[split]:
            pred = self.model(sparse.to(self.device), dense.to(self.device))
            loss += self.criterion(pred, label.to(self.device))
            preds.append(pred)
            labels.append(label)
        preds = torch.cat(preds).detach().cpu().numpy()
        labels = torch.cat(labels).numpy()
        return roc_auc(labels, preds), float(loss) / len(self.loaders[split])

    def fit(self):
        for epoch in range(self.cfg['epochs']):
            t0 = time.time()
            train_loss = self.train_epoch(epoch)
            auc, logloss = self.evaluate('valid')
            print('epoch %d train loss %.5f valid auc %.5f logloss %.5f lr %.2e' % (
                epoch, train_loss, auc, logloss, self.optimizer.param_groups[0]['lr']))
            print('  time %.1fs' % (time.time() - t0))
            if auc > self.best_auc:
                self.best_auc, self.bad = auc, 0
                self.best_state = {k: v.detach().cpu().clone() for k, v in self.model.state_dict().items()}
            else:
                self.bad += 1
                if self.bad >= self.cfg['patience']:
                    print('early stop')
                    break
        self.model.load_state_dict(self.best_state)
        torch.save(self.best_state, 'deepfm.pt')
        auc, logloss = self.evaluate('test')
        print('test auc %.5f logloss %.5f' % (auc, logloss))
