import csv
import os
from datetime import datetime

import numpy as np
from torch.utils.data import Dataset

from data_provider.make_csv import make_csv


class StandardScaler():
    def fit(self, data):
        self.mean = data.mean(0)
        self.std = data.std(0)

    def transform(self, data):
        return (data - self.mean) / self.std

    def inverse_transform(self, data):
        return data * self.std + self.mean


class Dataset_Plant_hour(Dataset):
    def __init__(self, root_path, flag='train', size=None, data_path='plant1.csv', n_rows=17420):
        # size [seq_len, label_len, pred_len]
        self.seq_len = size[0]
        self.label_len = size[1]
        self.pred_len = size[2]
        assert flag in ['train', 'test', 'val']
        self.set_type = {'train': 0, 'val': 1, 'test': 2}[flag]
        self.file = os.path.join(root_path, data_path)
        if not os.path.exists(self.file):
            make_csv(self.file, n_rows)
        self.__read_data__()

    def __read_data__(self):
        self.scaler = StandardScaler()
        dates, rows = [], []
        with open(self.file) as f:
            reader = csv.reader(f)
            next(reader)
            for r in reader:
                dates.append(datetime.strptime(r[0], '%Y-%m-%d %H:%M:%S'))
                rows.append([float(v) for v in r[1:]])
        data = np.array(rows)
        n = len(data)
        num_train, num_test = int(n * 0.7), int(n * 0.2)
        num_vali = n - num_train - num_test
        border1 = [0, num_train - self.seq_len, n - num_test - self.seq_len][self.set_type]
        border2 = [num_train, num_train + num_vali, n][self.set_type]

        self.scaler.fit(data[:num_train])
        data = self.scaler.transform(data)

        # month, day, weekday, hour in [-0.5, 0.5]
        stamp = []
        for d in dates[border1:border2]:
            stamp.append([(d.month - 1) / 11.0 - 0.5, (d.day - 1) / 30.0 - 0.5,
                          d.weekday() / 6.0 - 0.5, d.hour / 23.0 - 0.5])
        self.data_stamp = np.array(stamp)
        self.data_x = data[border1:border2]
        self.data_y = data[border1:border2]

    def __getitem__(self, index):
        s_begin = index
        s_end = s_begin + self.seq_len
        r_begin = s_end - self.label_len
        r_end = r_begin + self.label_len + self.pred_len

        seq_x = self.data_x[s_begin:s_end]
        seq_y = self.data_y[r_begin:r_end]
        seq_x_mark = self.data_stamp[s_begin:s_end]
        seq_y_mark = self.data_stamp[r_begin:r_end]

        return seq_x, seq_y, seq_x_mark, seq_y_mark

    def __len__(self):
        return len(self.data_x) - self.seq_len - self.pred_len + 1

    def inverse_transform(self, data):
        return self.scaler.inverse_transform(data)
