# encoding: utf-8
"""Stand-in for Market-1501: every identity is a fixed set of colours for
head / torso / legs / bag, every picture adds pose, light and noise."""
import copy
import random
from collections import defaultdict

import numpy as np
import torch
from torch.utils.data import Dataset
from torch.utils.data.sampler import Sampler

MEAN = np.array([0.485, 0.456, 0.406], dtype=np.float32)
STD = np.array([0.229, 0.224, 0.225], dtype=np.float32)


def make_pedestrians(num_ids, per_id, height, width, seed=0, num_cams=6):
    rng = np.random.RandomState(seed)
    imgs, pids, cams = [], [], []
    for pid in range(num_ids):
        colours = rng.randint(30, 226, size=(4, 3))
        for k in range(per_id):
            cam = (k + rng.randint(num_cams)) % num_cams
            im = rng.randint(90, 130, size=(height, width, 3)).astype(np.int16)
            x0 = width // 4 + rng.randint(-width // 10, width // 10 + 1)
            x1 = x0 + width // 2
            h1, h2 = int(height * .22), int(height * .55)
            im[2:h1, x0 + 2:x1 - 2] = colours[0]
            im[h1:h2, x0:x1] = colours[1]
            im[h2:, x0 + 1:x1 - 1] = colours[2]
            im[h1:h1 + 6, x1:x1 + 5] = colours[3]
            im = im * (0.8 + 0.08 * cam) + rng.randint(-12, 13, size=im.shape)
            imgs.append(np.clip(im, 0, 255).astype(np.uint8))
            pids.append(pid)
            cams.append(cam)
    return imgs, np.array(pids), np.array(cams)


class RandomErasing(object):
    def __init__(self, p=0.5, sl=0.02, sh=0.3, r1=0.3):
        self.p, self.sl, self.sh, self.r1 = p, sl, sh, r1

    def __call__(self, img):
        if np.random.uniform() >= self.p:
            return img
        h, w = img.shape[:2]
        for _ in range(100):
            area = np.random.uniform(self.sl, self.sh) * h * w
            ratio = np.random.uniform(self.r1, 1 / self.r1)
            eh, ew = int(round(np.sqrt(area * ratio))), int(round(np.sqrt(area / ratio)))
            if eh < h and ew < w:
                y, x = np.random.randint(0, h - eh), np.random.randint(0, w - ew)
                img[y:y + eh, x:x + ew] = MEAN
                return img
        return img


class ReidImages(Dataset):
    def __init__(self, imgs, pids, cams, is_train):
        self.imgs, self.pids, self.cams = imgs, pids, cams
        self.is_train = is_train
        self.erase = RandomErasing()

    def __len__(self):
        return len(self.imgs)

    def __getitem__(self, i):
        img = self.imgs[i].astype(np.float32) / 255.0
        if self.is_train:
            if np.random.uniform() < 0.5:
                img = img[:, ::-1].copy()
            h, w = img.shape[:2]
            big = np.zeros((h + 20, w + 20, 3), dtype=np.float32)
            big[10:h + 10, 10:w + 10] = img
            y, x = np.random.randint(0, 21), np.random.randint(0, 21)
            img = big[y:y + h, x:x + w].copy()
            img = self.erase(img)
        img = (img - MEAN) / STD
        return torch.from_numpy(np.ascontiguousarray(img.transpose(2, 0, 1))), int(self.pids[i]), int(self.cams[i])


class RandomIdentitySampler(Sampler):
    """P identities x K instances per batch (In Defense of the Triplet Loss)."""

    def __init__(self, pids, batch_size, num_instances):
        self.batch_size = batch_size
        self.num_instances = num_instances
        self.num_pids_per_batch = batch_size // num_instances
        self.index_dic = defaultdict(list)
        for i, p in enumerate(pids):
            self.index_dic[int(p)].append(i)
        self.pids = list(self.index_dic.keys())
        self.length = 0
        for pid in self.pids:
            n = max(len(self.index_dic[pid]), num_instances)
            self.length += n - n % num_instances

    def __iter__(self):
        batch_idxs = defaultdict(list)
        for pid in self.pids:
            idxs = copy.deepcopy(self.index_dic[pid])
            if len(idxs) < self.num_instances:
                idxs = list(np.random.choice(idxs, size=self.num_instances, replace=True))
            random.shuffle(idxs)
            for s in range(0, len(idxs) - self.num_instances + 1, self.num_instances):
                batch_idxs[pid].append(idxs[s:s + self.num_instances])
        avai, final = copy.deepcopy(self.pids), []
        while len(avai) >= self.num_pids_per_batch:
            for pid in random.sample(avai, self.num_pids_per_batch):
                final.extend(batch_idxs[pid].pop(0))
                if len(batch_idxs[pid]) == 0:
                    avai.remove(pid)
        self.length = len(final)
        return iter(final)

    def __len__(self):
        return self.length
