"""ShanghaiTech-like folder:  root/images/IMG_12.jpg  +  root/points/IMG_12.npy  (N x 2, x then y)."""
import os
import random

import numpy as np
import torch
from PIL import Image
from scipy.ndimage import gaussian_filter
from torch.utils.data import Dataset
from torchvision import transforms

MEAN = [0.485, 0.456, 0.406]
STD = [0.229, 0.224, 0.225]


def density_from_points(points, height, width, sigma=4.0):
    """One gaussian blob per head, so that the map sums up to the number of heads."""
    dens = np.zeros((height, width), dtype=np.float32)
    for x, y in points:
        xi, yi = int(x), int(y)
        if 0 <= xi < width and 0 <= yi < height:
            dens[yi, xi] += 1.0
    return gaussian_filter(dens, sigma, mode="constant")


def shrink(density, factor=8):
    """Sum-pool, keeps the count."""
    h, w = density.shape
    h, w = h // factor * factor, w // factor * factor
    density = density[:h, :w]
    return density.reshape(h // factor, factor, w // factor, factor).sum(axis=(1, 3))


class CrowdDataset(Dataset):
    def __init__(self, root, crop=384, train=True):
        self.root = root
        self.crop = crop
        self.train = train
        self.names = sorted(n[:-4] for n in os.listdir(os.path.join(root, "images")) if n.endswith(".jpg"))
        self.to_tensor = transforms.Compose([
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ])
        self.jitter = transforms.ColorJitter(0.2, 0.2, 0.2)

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        name = self.names[i]
        img = Image.open(os.path.join(self.root, "images", name + ".jpg")).convert("RGB")
        pts = np.load(os.path.join(self.root, "points", name + ".npy"))
        w, h = img.size

        # small images are enlarged so that a crop always fits
        if self.train and min(w, h) < self.crop:
            s = self.crop / min(w, h) + 0.001
            img = img.resize((int(w * s), int(h * s)), Image.BILINEAR)
            pts = pts * s
            w, h = img.size

        # the map of the full image, so that heads next to the border leak into the crop correctly
        dens = density_from_points(pts, h, w)

        if self.train:
            x0 = random.randint(0, w - self.crop)
            y0 = random.randint(0, h - self.crop)
            img = img.crop((x0, y0, x0 + self.crop, y0 + self.crop))
            dens = dens[y0:y0 + self.crop, x0:x0 + self.crop]
            if random.random() < 0.5:
                img = img.transpose(Image.FLIP_LEFT_RIGHT)
                dens = dens[:, ::-1]
            img = self.jitter(img)
        else:
            w8, h8 = w // 8 * 8, h // 8 * 8
            img = img.crop((0, 0, w8, h8))

        target = torch.from_numpy(shrink(np.ascontiguousarray(dens)).copy()).unsqueeze(0)
        return self.to_tensor(img), target, len(pts)
