import csv
import os
from datetime import datetime, timedelta

import numpy as np
from torch.utils.data import DataLoader, Dataset

COLS = ['HUFL', 'HULL', 'MUFL', 'MULL', 'LUFL', 'LULL', 'OT']


def make_csv(path, hours):
    """Seven correlated hourly load curves with daily and weekly cycles."""
    rng = np.random.RandomState(3)
    t = np.arange(hours)
    start = datetime(2016, 7, 1)
    base = np.zeros((hours, 7))
    for k in range(7):
        base[:, k] = (2 + k) * np.sin(2 * np.pi * (t / 24.0 + rng.rand())) \
            + 1.5 * np.sin(2 * np.pi * (t / 168.0 + rng.rand())) \
            + np.cumsum(rng.normal(0, 0.05, hours)) + rng.normal(0, 0.3, hours) + 10
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, 'w', newline='') as f:
        w = csv.writer(f)
        w.writerow(['date'] + COLS)
        for i in range(hours):
            w.writerow([(start + timedelta(hours=i)).strftime('%Y-%m-%d %H:%M:%S')] + ['%.4f' % v for v in base[i]])


class StandardScaler:
    def fit(self, data):
        self.mean = data.mean(0)
        self.std = data.std(0)

    def transform(self, data):
        return (data - self.mean) / self.std

    def inverse_transform(self, data):
        return data * self.std + self.mean


def time_features(dates):
    """month, day, weekday, hour in [-0.5, 0.5]"""
    out = []
    for s in dates:
        d = datetime.strptime(s, '%Y-%m-%d %H:%M:%S')
        out.append([(d.month - 1) / 11.0 - 0.5, (d.day - 1) / 30.0 - 0.5, d.weekday() / 6.0 - 0.5, d.hour / 23.0 - 0.5])
    return np.array(out)


class WindowDataset(Dataset):
    def __init__(self, cfg, flag):
        self.seq_len, self.label_len, self.pred_len = cfg['seq_len'], cfg['label_len'], cfg['pred_len']
        if not os.path.exists(cfg['path']):
            make_csv(cfg['path'], cfg['hours'])
        with open(cfg['path']) as f:
            rows = list(csv.reader(f))[1:]
        n = len(rows)
        n_train, n_test = int(n * 0.7), int(n * 0.2)
        n_val = n - n_train - n_test
        b1 = {'train': 0, 'val': n_train - self.seq_len, 'test': n - n_test - self.seq_len}[flag]
        b2 = {'train': n_train, 'val': n_train + n_val, 'test': n}[flag]
        values = np.array([[float(v) for v in r[1:]] for r in rows])
        self.scaler = StandardScaler()
        self.scaler.fit(values[:n_train])
        self.data = self.scaler.transform(values)[b1:b2]
        self.dates = [r[0] for r in rows[b1:b2]]

    def __getitem__(self, index):
        s_begin = index
        s_end = s_begin + self.seq_len
        r_begin = s_end - self.label_len
        r_end = r_begin + self.label_len + self.pred_len
        seq_x = self.data[s_begin:s_end]
        seq_y = self.data[r_begin:r_end]
        seq_x_mark = time_features(self.dates[s_begin:s_end])
        seq_y_mark = time_features(self.dates[r_begin:r_end])
        return seq_x, seq_y, seq_x_mark, seq_y_mark

    def __len__(self):
        return len(self.data) - self.seq_len - self.pred_len + 1


def data_provider(cfg, flag):
    ds = WindowDataset(cfg, flag)
    loader = DataLoader(ds, batch_size=cfg['batch_size'], shuffle=(flag == 'train'),
                        num_workers=cfg['num_workers'], drop_last=(flag == 'train'))
    return ds, loader
