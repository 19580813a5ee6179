# -*- coding: utf-8 -*-
import os
import random

import numpy as np
import torch
from PIL import Image
from torch.utils import data


class FaceDataset(data.Dataset):
    def __init__(self, root, list_file, phase='train', input_size=112):
        self.root = root
        self.phase = phase
        self.input_size = input_size
        with open(os.path.join(root, list_file)) as fd:
            self.imgs = [l.split() for l in fd]

    def transform(self, img):
        s = self.input_size
        w, h = img.size
        if self.phase == 'train':
            x, y = random.randint(0, w - s), random.randint(0, h - s)
        else:
            x, y = (w - s) // 2, (h - s) // 2
        img = img.crop((x, y, x + s, y + s))
        if self.phase == 'train' and random.random() < 0.5:
            img = img.transpose(Image.FLIP_LEFT_RIGHT)
        img = np.array(img, dtype=np.float32).transpose(2, 0, 1)
        img = (img - 127.5) / 128.0
        return torch.from_numpy(img.copy()).float()

    def __getitem__(self, index):
        name, label = self.imgs[index]
        img = Image.open(os.path.join(self.root, name)).convert('RGB')
        return self.transform(img), int(label)

    def __len__(self):
        return len(self.imgs)


class PairDataset(FaceDataset):
    def __init__(self, root, list_file, input_size=112):
        super(PairDataset, self).__init__(root, list_file, 'test', input_size)

    def __getitem__(self, index):
        a, b, same = self.imgs[index]
        img1 = Image.open(os.path.join(self.root, a)).convert('RGB')
        img2 = Image.open(os.path.join(self.root, b)).convert('RGB')
        return self.transform(img1), self.transform(img2), int(same)
