import random

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset
from torch.utils.data.sampler import Sampler

from retina.shapes import CLASSES


class ShapesDataset(Dataset):
    def __init__(self, path, start, stop, transform=None):
        data = np.load(path, allow_pickle=True)
        self.images = data['images'][start:stop]
        self.boxes = data['boxes'][start:stop]
        self.transform = transform

    def __len__(self):
        return len(self.images)

    def __getitem__(self, idx):
        img = self.load_image(idx)
        annot = self.boxes[idx].copy()
        sample = {'img': img, 'annot': annot}
        if self.transform:
            sample = self.transform(sample)
        return sample

    def load_image(self, image_index):
        img = self.images[image_index]
        return img.astype(np.float32) / 255.0

    def num_classes(self):
        return len(CLASSES)

    def image_aspect_ratio(self, image_index):
        h, w = self.images[image_index].shape[:2]
        return float(w) / float(h)


class Compose(object):
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, sample):
        for t in self.transforms:
            sample = t(sample)
        return sample


class Normalizer(object):
    def __init__(self):
        self.mean = np.array([[[0.485, 0.456, 0.406]]])
        self.std = np.array([[[0.229, 0.224, 0.225]]])

    def __call__(self, sample):
        return {'img': ((sample['img'].astype(np.float32) - self.mean) / self.std), 'annot': sample['annot']}


class Augmenter(object):
    """horizontal flip"""

    def __call__(self, sample, flip_x=0.5):
        if np.random.rand() < flip_x:
            image, annots = sample['img'], sample['annot']
            image = image[:, ::-1, :]
            cols = image.shape[1]
            x1 = annots[:, 0].copy()
            x2 = annots[:, 2].copy()
            annots[:, 0] = cols - x2
            annots[:, 2] = cols - x1
            sample = {'img': image, 'annot': annots}
        return sample


class Resizer(object):
    """Resize so that the short side is min_side, pad to a multiple of 32."""

    def __init__(self, min_side, max_side):
        self.min_side = min_side
        self.max_side = max_side

    def __call__(self, sample):
        image, annots = sample['img'], sample['annot']
        rows, cols, cns = image.shape
        scale = self.min_side / min(rows, cols)
        if max(rows, cols) * scale > self.max_side:
            scale = self.max_side / max(rows, cols)
        size = (int(round(cols * scale)), int(round(rows * scale)))
        channels = []
        for c in range(cns):
            # PIL knows float images with one channel only
            ch = Image.fromarray(np.ascontiguousarray(image[:, :, c]).astype(np.float32))
            channels.append(np.asarray(ch.resize(size, Image.BILINEAR)))
        image = np.stack(channels, axis=2)

        rows, cols, cns = image.shape
        new_image = np.zeros((rows + (32 - rows % 32) % 32, cols + (32 - cols % 32) % 32, cns)).astype(np.float32)
        new_image[:rows, :cols, :] = image.astype(np.float32)
        annots[:, :4] *= scale
        return {'img': torch.from_numpy(new_image), 'annot': torch.from_numpy(annots), 'scale': scale}


def collater(data):
    imgs = [s['img'] for s in data]
    annots = [s['annot'] for s in data]
    scales = [s['scale'] for s in data]

    widths = [int(s.shape[0]) for s in imgs]
    heights = [int(s.shape[1]) for s in imgs]
    batch_size = len(imgs)
    padded_imgs = torch.zeros(batch_size, max(widths), max(heights), 3)
    for i in range(batch_size):
        img = imgs[i]
        padded_imgs[i, :int(img.shape[0]), :int(img.shape[1]), :] = img

    max_num_annots = max(annot.shape[0] for annot in annots)
    annot_padded = torch.ones((len(annots), max_num_annots, 5)) * -1
    for idx, annot in enumerate(annots):
        annot_padded[idx, :annot.shape[0], :] = annot

    padded_imgs = padded_imgs.permute(0, 3, 1, 2)
    return {'img': padded_imgs, 'annot': annot_padded, 'scale': scales}


class AspectRatioBasedSampler(Sampler):
    def __init__(self, data_source, batch_size, drop_last):
        self.data_source = data_source
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.groups = self.group_images()

    def __iter__(self):
        random.shuffle(self.groups)
        for group in self.groups:
            yield group

    def __len__(self):
        return (len(self.data_source) + self.batch_size - 1) // self.batch_size

    def group_images(self):
        # determine the order of the images
        order = list(range(len(self.data_source)))
        order.sort(key=lambda x: self.data_source.image_aspect_ratio(x))
        # divide into groups, one group = one batch
        return [[order[x % len(order)] for x in range(i, i + self.batch_size)]
                for i in range(0, len(order), self.batch_size)]
