"""Catalogue photos for the retrieval model.

The csv has three columns: path,sku,split  (split is train / query / gallery).
Query and gallery SKUs never appear in train (open set).
"""
import csv
import os
import random

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset

MEAN = np.array([0.485, 0.456, 0.406], dtype=np.float32)
STD = np.array([0.229, 0.224, 0.225], dtype=np.float32)


def read_csv(path: str, split: str) -> list[tuple[str, str]]:
    with open(path, newline="") as f:
        return [(r["path"], r["sku"]) for r in csv.DictReader(f) if r["split"] == split]


def to_tensor(img: Image.Image) -> torch.Tensor:
    arr = np.asarray(img, dtype=np.float32) / 255.0
    arr = (arr - MEAN) / STD
    return torch.from_numpy(arr.transpose(2, 0, 1).copy())


class TrainImages(Dataset):
    def __init__(self, root: str, csv_path: str, size: int = 224):
        self.root = root
        self.size = size
        self.rows = read_csv(csv_path, "train")
        self.skus = sorted({sku for _, sku in self.rows})
        self.sku_to_id = {s: i for i, s in enumerate(self.skus)}

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        path, sku = self.rows[i]
        img = Image.open(os.path.join(self.root, path)).convert("RGB")
        # studio photos: mild crop, mirrored left/right shoe
        big = int(self.size * 1.15)
        img = img.resize((big, big), Image.BILINEAR)
        dx = random.randint(0, big - self.size)
        dy = random.randint(0, big - self.size)
        img = img.crop((dx, dy, dx + self.size, dy + self.size))
        if random.random() < 0.5:
            img = img.transpose(Image.FLIP_LEFT_RIGHT)
        return to_tensor(img), self.sku_to_id[sku]


class EvalImages(Dataset):
    """Query or gallery images; the label is the SKU string hashed to an int by the caller."""

    def __init__(self, root: str, csv_path: str, split: str, sku_ids: dict[str, int], size: int = 224):
        self.root = root
        self.size = size
        self.rows = read_csv(csv_path, split)
        self.sku_ids = sku_ids

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        path, sku = self.rows[i]
        img = Image.open(os.path.join(self.root, path)).convert("RGB")
        img = img.resize((self.size, self.size), Image.BILINEAR)
        return to_tensor(img), self.sku_ids[sku]
