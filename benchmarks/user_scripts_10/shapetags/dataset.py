import csv
import os

import torch
from PIL import Image
from torch.utils.data import Dataset


class TagDataset(Dataset):
    """Multi-label dataset: root/images/*.png and root/labels.csv"""

    def __init__(self, root, split, transform=None):
        self.root = root
        self.transform = transform
        self.rows = []
        classes = set()
        with open(os.path.join(root, 'labels.csv')) as f:
            for row in csv.DictReader(f):
                tags = row['tags'].split('|')
                classes.update(tags)
                if row['split'] == split:
                    self.rows.append((row['image'], tags))
        self.classes = sorted(classes)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, idx):
        name, tags = self.rows[idx]
        img = Image.open(os.path.join(self.root, 'images', name)).convert('RGB')
        if self.transform is not None:
            img = self.transform(img)
        target = torch.zeros(len(self.classes))
        for t in tags:
            target[self.classes.index(t)] = 1.0
        return img, target

    def pos_weight(self):
        """negatives / positives of every class"""
        counts = torch.zeros(len(self.classes))
        for _, tags in self.rows:
            for t in tags:
                counts[self.classes.index(t)] += 1
        counts = counts.clamp(min=1)
        return ((len(self.rows) - counts) / counts).clamp(max=10.0).tolist()
