# -*- coding: utf-8 -*-
"""
Transfer Learning on my flower pictures
=======================================
(based on the PyTorch transfer learning tutorial, but I have no internet in the
lab so the "flowers" are drawn by numpy and the "pretrained" net is trained first
on a rotation task)
"""
from __future__ import print_function, division

import copy
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, Dataset

SEED = 1234
random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)

class_names = ['daisy', 'tulip', 'rose', 'iris', 'lily']
N_TRAIN, N_VAL, SIZE = 333, 110, 32


######################################################################
# Draw the pictures
# -----------------

def draw_flower(label, rng):
    img = np.full((SIZE, SIZE, 3), 90, np.float32)
    img[..., 1] += 40
    yy, xx = np.mgrid[:SIZE, :SIZE]
    cx, cy = rng.uniform(11, 21, 2)
    r = np.hypot(xx - cx, yy - cy)
    th = np.arctan2(yy - cy, xx - cx)
    petals = 3 + label
    edge = 6 + 4 * np.cos(petals * th + rng.uniform(0, 6.28))
    mask = r < edge
    img[mask] = rng.uniform(100, 255, 3)
    img[r < 2.5] = (240, 220, 40)
    img += rng.normal(0, 12, img.shape)
    return np.clip(img, 0, 255).astype(np.uint8)


def make_set(n, seed):
    rng = np.random.RandomState(seed)
    y = rng.randint(0, len(class_names), n)
    return np.stack([draw_flower(k, rng) for k in y]), y


######################################################################
# Augmentations, same names as in torchvision but for numpy HWC uint8

class Compose:
    def __init__(self, ts):
        self.ts = ts

    def __call__(self, im):
        for t in self.ts:
            im = t(im)
        return im


class RandomCrop:
    def __init__(self, pad):
        self.pad = pad

    def __call__(self, im):
        p = np.pad(im, ((self.pad, self.pad), (self.pad, self.pad), (0, 0)), mode='reflect')
        i, j = random.randint(0, 2 * self.pad), random.randint(0, 2 * self.pad)
        return p[i:i + SIZE, j:j + SIZE]


class RandomHorizontalFlip:
    def __call__(self, im):
        return im[:, ::-1] if random.random() < 0.5 else im


class ColorJitter:
    def __init__(self, s):
        self.s = s

    def __call__(self, im):
        f = 1 + np.random.uniform(-self.s, self.s, 3)
        return np.clip(im * f, 0, 255).astype(np.uint8)


mean = [0.40, 0.50, 0.40]
std = [0.25, 0.22, 0.25]

data_transforms = {
    'train': Compose([
        RandomCrop(3),
        RandomHorizontalFlip(),
        ColorJitter(0.15),
        lambda im: torch.from_numpy(np.ascontiguousarray(im)).permute(2, 0, 1).float() / 255,
        lambda t: (t - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None],
    ]),
    'val': Compose([
        lambda im: torch.from_numpy(np.ascontiguousarray(im)).permute(2, 0, 1).float() / 255,
        lambda t: (t - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None],
    ]),
}


class FlowerData(Dataset):
    """Erases a square which grows the longer we train (self.seen counts the pictures served)."""

    def __init__(self, images, labels, transform, grow=0):
        self.images, self.labels = images, labels
        self.transform = transform
        self.grow = grow
        self.seen = 0

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, idx):
        self.seen += 1
        img = self.transform(self.images[idx])
        if self.grow:
            k = min(8, self.seen // self.grow)
            if k > 0:
                i, j = random.randint(0, SIZE - k), random.randint(0, SIZE - k)
                img[:, i:i + k, j:j + k] = 0
        return img, int(self.labels[idx])


image_datasets = {'train': FlowerData(*make_set(N_TRAIN, 0), transform=data_transforms['train'], grow=150),
                  'val': FlowerData(*make_set(N_VAL, 1), transform=data_transforms['val'])}
dataloaders = {x: DataLoader(image_datasets[x], batch_size=32, shuffle=True)
               for x in ['train', 'val']}
dataset_sizes = {x: len(image_datasets[x]) for x in ['train', 'val']}

device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")


######################################################################
# The net

class SmallNet(nn.Module):
    def __init__(self, n_out):
        super(SmallNet, self).__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(inplace=True), nn.MaxPool2d(2),
            nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(inplace=True))
        self.fc = nn.Linear(32, n_out)

    def forward(self, x):
        x = self.features(x)
        x = x.mean(dim=(2, 3))
        return self.fc(x)


def imshow_text(inp, title=None):
    """no display on the server: print the mean colours instead"""
    inp = inp.cpu().numpy().transpose((1, 2, 0))
    inp = np.clip(np.array(std) * inp + np.array(mean), 0, 1)
    print(title, inp.mean(axis=(0, 1)))


inputs, classes = next(iter(dataloaders['train']))
imshow_text(inputs[0], title=class_names[classes[0]])


def pretrain(model, steps=25):
    opt = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    model.train()
    it = iter(dataloaders['train'])
    for step in range(steps):
        try:
            x, _ = next(it)
        except StopIteration:
            it = iter(dataloaders['train'])
            x, _ = next(it)
        k = torch.randint(0, 4, (x.size(0),))
        x = torch.stack([torch.rot90(im, int(r), (1, 2)) for im, r in zip(x, k)])
        x, k = x.to(device), k.to(device)
        loss = F.cross_entropy(model(x), k)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print('pretrain loss', loss.item())
    return model


def train_model(model, criterion, optimizer, scheduler, num_epochs=25):
    best_model_wts = copy.deepcopy(model.state_dict())
    best_acc = 0.0
    step = 0

    for epoch in range(num_epochs):
        print('Epoch {}/{}'.format(epoch, num_epochs - 1))
        print('-' * 10)

        # Each epoch has a training and validation phase
        for phase in ['train', 'val']:
            if phase == 'train':
                model.train()
                model.features[1].eval()   # keep the first statistics
            else:
                model.eval()

            running_loss = 0.0
            running_corrects = 0

            for inputs, labels in dataloaders[phase]:
                inputs = inputs.to(device)
                labels = labels.to(device)

                optimizer.zero_grad()

                with torch.set_grad_enabled(phase == 'train'):
                    outputs = model(inputs)
                    _, preds = torch.max(outputs, 1)
                    loss = criterion(outputs, labels)

                    if phase == 'train':
                        loss.backward()
                        optimizer.step()
                        step += 1
                        print('  step', step, 'loss', loss.item())

                running_loss += loss.item() * inputs.size(0)
                running_corrects += torch.sum(preds == labels.data)
            if phase == 'train':
                scheduler.step()

            epoch_loss = running_loss / dataset_sizes[phase]
            epoch_acc = running_corrects.double() / dataset_sizes[phase]
            print('{} Loss: {} Acc: {}'.format(phase, epoch_loss, epoch_acc))
            torch.cuda.empty_cache()

            if phase == 'val' and epoch_acc > best_acc:
                best_acc = epoch_acc
                best_model_wts = copy.deepcopy(model.state_dict())
        print()

    print('Best val Acc: {}'.format(best_acc))
    model.load_state_dict(best_model_wts)
    return model


def recalibrate(model, loader):
    # new BatchNorm statistics for the best weights
    for m in model.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.reset_running_stats()
            m.momentum = None
    model.train()
    with torch.no_grad():
        for x, _ in loader:
            model(x.to(device))
    model.eval()


def visualize_model(model, num_images=6):
    """saliency of a few pictures (needs the gradient of the input)"""
    was_training = model.training
    model.eval()
    images_so_far = 0
    for inputs, labels in dataloaders['val']:
        inputs = inputs.to(device)
        inputs.requires_grad_(True)
        outputs = model(inputs)
        outputs.max(1)[0].sum().backward()
        sal = inputs.grad.abs().amax(1)
        for j in range(inputs.size(0)):
            images_so_far += 1
            print('predicted:', class_names[outputs[j].argmax().item()], 'true:', class_names[labels[j]],
                  'saliency', sal[j].max().item())
            if images_so_far == num_images:
                model.train(mode=was_training)
                return


def per_class(model):
    correct = [0] * len(class_names)
    total = [0] * len(class_names)
    model.eval()
    for x, y in dataloaders['val']:
        out = model(x.to(device))
        hit = (out.argmax(1).cpu() == y)
        for i in range(len(y)):
            correct[y[i]] += hit[i].item()
            total[y[i]] += 1
    for c, name in enumerate(class_names):
        print('Accuracy of %5s : %r' % (name, correct[c] / total[c]))


######################################################################
# Finetuning

model_ft = pretrain(SmallNet(4).to(device))
for p in list(model_ft.features.parameters())[:4]:
    p.requires_grad = False
model_ft.fc = nn.Linear(32, len(class_names)).to(device)

criterion = nn.CrossEntropyLoss()
optimizer_ft = optim.SGD(filter(lambda p: p.requires_grad, model_ft.parameters()), lr=0.03, momentum=0.9)
exp_lr_scheduler = lr_scheduler.StepLR(optimizer_ft, step_size=2, gamma=0.3)

model_ft = train_model(model_ft, criterion, optimizer_ft, exp_lr_scheduler, num_epochs=4)
recalibrate(model_ft, dataloaders['train'])
visualize_model(model_ft)
per_class(model_ft)
print('pictures served:', {x: image_datasets[x].seen for x in image_datasets})
