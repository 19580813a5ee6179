import copy
import random
from collections import defaultdict

import numpy as np
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.sampler import Sampler

from reid.data.people import make_people
from reid.data.transforms import TrainTransform, normalize


class ImageDataset(Dataset):
    def __init__(self, images, pids, camids, transform):
        self.images, self.pids, self.camids = images, pids, camids
        self.transform = transform

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        img = self.transform(Image.fromarray(self.images[index]))
        return img, int(self.pids[index]), int(self.camids[index])


class RandomIdentitySampler(Sampler):
    """N identities, K instances of each"""

    def __init__(self, pids, batch_size, num_instances):
        self.batch_size = batch_size
        self.num_instances = num_instances
        self.num_pids_per_batch = batch_size // num_instances
        self.index_dic = defaultdict(list)
        for index, pid in enumerate(pids):
            self.index_dic[int(pid)].append(index)
        self.pids = list(self.index_dic.keys())
        self.length = sum(len(v) // num_instances * num_instances for v in self.index_dic.values())

    def __iter__(self):
        batch_idxs_dict = defaultdict(list)
        for pid in self.pids:
            idxs = copy.deepcopy(self.index_dic[pid])
            random.shuffle(idxs)
            for i in range(0, len(idxs) - self.num_instances + 1, self.num_instances):
                batch_idxs_dict[pid].append(idxs[i:i + self.num_instances])
        avai_pids = copy.deepcopy(self.pids)
        final_idxs = []
        while len(avai_pids) >= self.num_pids_per_batch:
            for pid in random.sample(avai_pids, self.num_pids_per_batch):
                final_idxs.extend(batch_idxs_dict[pid].pop(0))
                if len(batch_idxs_dict[pid]) == 0:
                    avai_pids.remove(pid)
        return iter(final_idxs)

    def __len__(self):
        return self.length


def make_data_loader(cfg):
    d, l = cfg.DATA, cfg.LOADER
    train = make_people(d.TRAIN_IDS, d.IMGS_PER_ID, d.HEIGHT, d.WIDTH, d.NUM_CAMS, seed=cfg.SEED)
    images, pids, camids = make_people(d.TEST_IDS, d.IMGS_PER_ID, d.HEIGHT, d.WIDTH, d.NUM_CAMS, seed=cfg.SEED + 1)
    # the first image of every camera of an identity is a query
    is_query = np.zeros(len(pids), dtype=bool)
    seen = set()
    for i, key in enumerate(zip(pids, camids)):
        if key not in seen:
            seen.add(key)
            is_query[i] = True
    order = np.concatenate([np.where(is_query)[0], np.where(~is_query)[0]])

    train_set = ImageDataset(*train, TrainTransform(d.HEIGHT, d.WIDTH))
    val_set = ImageDataset(images[order], pids[order], camids[order], normalize)
    batch = l.IDS_PER_BATCH * l.IMGS_PER_BATCH_ID
    train_loader = DataLoader(train_set, batch_size=batch, num_workers=l.NUM_WORKERS, pin_memory=True, drop_last=True,
                              sampler=RandomIdentitySampler(train[1], batch, l.IMGS_PER_BATCH_ID))
    val_loader = DataLoader(val_set, batch_size=l.TEST_BATCH, num_workers=l.NUM_WORKERS, pin_memory=True)
    return train_loader, val_loader, int(is_query.sum())
