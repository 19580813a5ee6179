import time

import numpy as np
import torch
import torch.nn as nn
from torch import optim

from .data import COLS, data_provider
from .model import Forecaster
from .tools import EarlyStopping, adjust_learning_rate, metric


class Experiment:
    def __init__(self, cfg):
        self.cfg = cfg
        self.device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
        self.model = Forecaster(len(COLS), len(COLS), cfg['data']['pred_len'], **cfg['model']).float().to(self.device)
        self.label_len = cfg['data']['label_len']
        self.pred_len = cfg['data']['pred_len']

    def _forward(self, batch_x, batch_y, batch_x_mark, batch_y_mark):
        batch_x = batch_x.float().to(self.device)
        batch_y = batch_y.float().to(self.device)
        batch_x_mark = batch_x_mark.float().to(self.device)
        batch_y_mark = batch_y_mark.float().to(self.device)
        dec_inp = torch.zeros_like(batch_y[:, -self.pred_len:, :]).float()
        dec_inp = torch.cat([batch_y[:, :self.label_len, :], dec_inp], dim=1)
        outputs = self.model(batch_x, batch_x_mark, dec_inp, batch_y_mark)
        return outputs, batch_y[:, -self.pred_len:, :]

    def vali(self, loader, criterion):
        total_loss = []
        self.model.eval()
        with torch.no_grad():
            for batch in loader:
                outputs, true = self._forward(*batch)
                pred = outputs.detach().cpu()
                true = true.detach().cpu()
                loss = criterion(pred, true)
                total_loss.append(loss)
        self.model.train()
        return np.average([float(v) for v in total_loss])

    def train(self):
        cfg = self.cfg['train']
        _, train_loader = data_provider(self.cfg['data'], 'train')
        _, vali_loader = data_provider(self.cfg['data'], 'val')
        _, test_loader = data_provider(self.cfg['data'], 'test')
        early_stopping = EarlyStopping(cfg['patience'], cfg['ckpt'])
        optimizer = optim.Adam(self.model.parameters(), lr=cfg['lr'])
        criterion = nn.MSELoss()

        for epoch in range(cfg['epochs']):
            iter_count, train_loss = 0, []
            t0 = time.time()
            self.model.train()
            for i, batch in enumerate(train_loader):
                iter_count += 1
                optimizer.zero_grad()
                outputs, true = self._forward(*batch)
                loss = criterion(outputs, true)
                train_loss.append(loss.item())
                if (i + 1) % 10 == 0:
                    print('\titers: {0}, epoch: {1} | loss: {2:.7f}'.format(i + 1, epoch + 1, loss.item()))
                loss.backward()
                optimizer.step()
            print('Epoch: {} cost time: {:.1f}s'.format(epoch + 1, time.time() - t0))
            train_loss = np.average(train_loss)
            vali_loss = self.vali(vali_loader, criterion)
            test_loss = self.vali(test_loader, criterion)
            print('Epoch: {0}, Steps: {1} | Train Loss: {2:.7f} Vali Loss: {3:.7f} Test Loss: {4:.7f}'.format(
                epoch + 1, iter_count, train_loss, vali_loss, test_loss))
            early_stopping(vali_loss, self.model)
            if early_stopping.early_stop:
                print('Early stopping')
                break
            adjust_learning_rate(optimizer, epoch + 1, cfg['lr'])
        self.model.load_state_dict(torch.load(cfg['ckpt']))

    def test(self):
        dataset, loader = data_provider(self.cfg['data'], 'test')
        preds, trues = [], []
        self.model.eval()
        with torch.no_grad():
            for batch in loader:
                outputs, true = self._forward(*batch)
                preds.append(outputs.detach().cpu().numpy())
                trues.append(true.detach().cpu().numpy())
        preds, trues = np.concatenate(preds), np.concatenate(trues)
        print('test shape:', preds.shape, trues.shape)
        mae, mse = metric(preds, trues)
        print('mse:{:.6f}, mae:{:.6f}'.format(mse, mae))
        ot = dataset.scaler.inverse_transform(preds)[..., -1]
        print('OT forecast mean {:.4f} std {:.4f}'.format(ot.mean(), ot.std()))
