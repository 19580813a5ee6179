import os
import random

import numpy as np
import torch


def fix_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def adjust_learning_rate(optimizer, epoch, lr0):
    lr = lr0 * (0.5 ** ((epoch - 1) // 1))
    for group in optimizer.param_groups:
        group['lr'] = lr
    print('Updating learning rate to {:.2e}'.format(lr))


class EarlyStopping:
    def __init__(self, patience, path):
        self.patience, self.path = patience, path
        self.counter, self.best, self.early_stop = 0, None, False
        os.makedirs(os.path.dirname(path), exist_ok=True)

    def __call__(self, val_loss, model):
        if self.best is None or val_loss < self.best:
            self.best, self.counter = val_loss, 0
            torch.save(model.state_dict(), self.path)
        else:
            self.counter += 1
            print('EarlyStopping counter: {} out of {}'.format(self.counter, self.patience))
            self.early_stop = self.counter >= self.patience


def metric(pred, true):
    mae = np.mean(np.abs(pred - true))
    mse = np.mean((pred - true) ** 2)
    return mae, mse
