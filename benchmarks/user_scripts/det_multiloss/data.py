import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Boxes(Dataset):
    """0..3 rectangles of 3 classes; target is a dict with boxes (n,4) and labels (n,), n may be 0"""

    def __init__(self, n, seed, size=48):
        self.n, self.seed, self.size = n, seed, size

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        r = np.random.RandomState(self.seed * 1000 + i)
        s = self.size
        img = r.randn(3, s, s).astype(np.float32) * 0.2
        boxes, labels = [], []
        for _ in range(r.randint(0, 4)):
            w, h = r.randint(8, 20, 2)
            x, y, c = r.randint(0, s - w), r.randint(0, s - h), r.randint(0, 3)
            img[c, y:y + h, x:x + w] += 1.0
            boxes.append([x, y, x + w, y + h])
            labels.append(c)
        return img, {'boxes': np.array(boxes, dtype=np.float32).reshape(-1, 4), 'labels': np.array(labels, dtype=np.int64), 'id': i}


class Collater:
    """random scale per batch (multi-scale training)"""

    def __init__(self, scales=(1.0,), seed=0):
        self.scales, self.rng = scales, np.random.RandomState(seed)

    def __call__(self, batch):
        f = self.scales[self.rng.randint(len(self.scales))]
        imgs = torch.from_numpy(np.stack([b[0] for b in batch]))
        if f != 1.0:
            imgs = torch.nn.functional.interpolate(imgs, scale_factor=f, mode='bilinear', align_corners=False)
        targets = []
        for _, t in batch:
            targets.append({'boxes': torch.from_numpy(t['boxes']) * f, 'labels': torch.from_numpy(t['labels']), 'id': t['id']})
        return imgs, targets


def get_loader(n, seed, batch_size, **kwargs):
    return DataLoader(Boxes(n, seed), batch_size=batch_size, **kwargs)
