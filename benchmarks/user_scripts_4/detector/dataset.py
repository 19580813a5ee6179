import math
import numpy as np
import torch
from torch.utils.data import Dataset


class BlobsDetection(Dataset):
    """Images with coloured rectangles. Returns image (C,H,W) and target dict as in torchvision."""

    def __init__(self, n, size=96, max_obj=4, seed=0, mosaic=0.0):
        self.n, self.size, self.max_obj, self.seed = n, size, max_obj, seed
        self.mosaic = mosaic

    def __len__(self):
        return self.n

    def load(self, i):
        rng = np.random.default_rng(self.seed * 100003 + i)
        img = rng.normal(0.3, 0.05, (self.size, self.size, 3)).astype(np.float32)
        k = int(rng.integers(0, self.max_obj + 1))
        boxes, labels = [], []
        for _ in range(k):
            w, h = rng.integers(12, 32, 2)
            x, y = rng.integers(0, self.size - w), rng.integers(0, self.size - h)
            c = int(rng.integers(0, 3))
            img[y:y + h, x:x + w, c] += 0.6
            boxes.append([x, y, x + w, y + h])
            labels.append(c)
        return img, np.array(boxes, dtype=np.float32).reshape(-1, 4), np.array(labels, dtype=np.int64)

    def __getitem__(self, i):
        img, boxes, labels = self.load(i)
        if np.random.rand() < self.mosaic:
            j = np.random.randint(self.n)
            img2, boxes2, labels2 = self.load(j)
            half = self.size // 2
            img = np.concatenate([img[:, :half], img2[:, half:]], 1)
            keep1 = (boxes[:, 0] + boxes[:, 2]) / 2 < half
            keep2 = (boxes2[:, 0] + boxes2[:, 2]) / 2 >= half
            boxes = np.concatenate([boxes[keep1], boxes2[keep2]])
            labels = np.concatenate([labels[keep1], labels2[keep2]])
        return torch.from_numpy(img).permute(2, 0, 1).contiguous(), {
            "boxes": torch.from_numpy(boxes), "labels": torch.from_numpy(labels), "image_id": i}


def detection_collate(batch):
    imgs, targets = zip(*batch)
    return torch.stack(imgs), list(targets)
