import random

import numpy as np
import torch
from torch.utils.data import Dataset

CLASSES = ("square", "disc", "cross")


class ShapesDataset(Dataset):
    def __init__(self, n=400, size=128, train=True):
        self.n, self.size, self.train = n, size, train
        self.seed0 = 0 if train else 10 ** 6

    def __len__(self):
        return self.n

    def __getitem__(self, idx):
        rng = np.random.RandomState(self.seed0 + idx)
        s = self.size
        img = rng.rand(s, s, 3).astype(np.float32) * 0.2
        boxes, labels = [], []
        yy, xx = np.mgrid[:s, :s]
        for _ in range(rng.randint(1, 5)):
            r = rng.randint(8, 24)
            cx, cy = rng.randint(r, s - r, size=2)
            c = rng.randint(3)
            if c == 0:
                m = (abs(xx - cx) <= r) & (abs(yy - cy) <= r)
            elif c == 1:
                m = (xx - cx) ** 2 + (yy - cy) ** 2 <= r * r
            else:
                m = ((abs(xx - cx) <= r // 3) & (abs(yy - cy) <= r)) | ((abs(yy - cy) <= r // 3) & (abs(xx - cx) <= r))
            img[m] = 0.4 + 0.6 * rng.rand(3)
            boxes.append([cx - r, cy - r, cx + r, cy + r])
            labels.append(c)
        boxes = torch.as_tensor(boxes, dtype=torch.float32)
        labels = torch.as_tensor(labels, dtype=torch.int64)
        img = torch.from_numpy(img).permute(2, 0, 1).contiguous()
        if self.train and random.random() < 0.5:
            img = img.flip(-1)
            boxes[:, [0, 2]] = s - boxes[:, [2, 0]]
        return img, {"boxes": boxes, "labels": labels, "image_id": idx}


def collate_fn(batch):
    return tuple(zip(*batch))
