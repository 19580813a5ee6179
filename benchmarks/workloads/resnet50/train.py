"""ResNet-50 on folders of JPEG files, one folder for each class."""

import argparse
import os
import random

import numpy as np
import torch
import torch.nn as nn
from PIL import Image
from torch.utils.data import DataLoader, Dataset

MEAN = np.array([0.485, 0.456, 0.406], dtype=np.float32)
STD = np.array([0.229, 0.224, 0.225], dtype=np.float32)


def draw(folder, classes, number, side):
    """Generated JPEG files, as FOLDER/CLASS/NUMBER.jpg."""
    rng = np.random.default_rng(0)
    for label in range(classes):
        os.makedirs(os.path.join(folder, str(label)), exist_ok=True)
        base = rng.integers(0, 256, (4, 4, 3)).astype(np.uint8)
        for n in range(number):
            small = np.clip(base + rng.normal(0, 30, base.shape), 0, 255).astype(np.uint8)
            picture = Image.fromarray(small).resize((side, side), Image.BICUBIC)
            picture.save(os.path.join(folder, str(label), f"{n}.jpg"))


class Pictures(Dataset):
    def __init__(self, folder, size):
        self.samples = []
        for label, name in enumerate(sorted(os.listdir(folder))):
            files = sorted(os.listdir(os.path.join(folder, name)))
            self.samples += [(os.path.join(folder, name, file), label) for file in files]
        self.size = size

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        path, label = self.samples[index]
        picture = Image.open(path).convert("RGB")
        side = int(min(picture.size) * random.uniform(0.5, 1))
        left = random.randint(0, picture.width - side)
        top = random.randint(0, picture.height - side)
        box = (left, top, left + side, top + side)
        picture = picture.resize((self.size, self.size), Image.BILINEAR, box=box)
        if random.random() < 0.5:
            picture = picture.transpose(Image.FLIP_LEFT_RIGHT)
        array = (np.asarray(picture, dtype=np.float32) / 255.0 - MEAN) / STD
        return torch.from_numpy(array.transpose(2, 0, 1).copy()), label


class Bottleneck(nn.Module):
    def __init__(self, inside, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inside != 4 * width:
            conv = nn.Conv2d(inside, 4 * width, 1, stride, bias=False)
            self.downsample = nn.Sequential(conv, nn.BatchNorm2d(4 * width))

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        return self.relu(self.bn3(self.conv3(out)) + identity)


def resnet50(width, classes):
    layers = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    layers.append(nn.MaxPool2d(3, 2, 1))
    inside = width
    for n, blocks in enumerate((3, 4, 6, 3)):
        for k in range(blocks):
            layers.append(Bottleneck(inside, width << n, 2 if n and not k else 1))
            inside = 4 * width << n
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, classes)]
    return nn.Sequential(*layers)


parser = argparse.ArgumentParser()
parser.add_argument("--data", default="pictures")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--tiny", action="store_true", help="for a CPU, in seconds")

if __name__ == "__main__":
    args = parser.parse_args()
    classes, number, side, size, batch, width = (100, 100, 400, 224, 128, 64)
    if args.tiny:
        classes, number, side, size, batch, width, args.epochs = 4, 10, 48, 32, 4, 4, 2
    if not os.path.exists(args.data):
        draw(args.data, classes, number, side)
    torch.manual_seed(0)
    random.seed(0)
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(Pictures(args.data, size), batch, shuffle=True, num_workers=2)
    model = resnet50(width, classes).to(device)
    criterion = nn.CrossEntropyLoss().to(device)
    lr = 0.1 * batch / 256
    optimizer = torch.optim.SGD(model.parameters(), lr, momentum=0.9, weight_decay=1e-4)
    for epoch in range(args.epochs):
        model.train()
        for i, (images, target) in enumerate(loader):
            images, target = images.to(device), target.to(device)
            output = model(images)
            loss = criterion(output, target)
            accuracy = (output.argmax(1) == target).float().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"epoch {epoch} step {i}: {loss.item():.4f}, accuracy {accuracy.item():.3f}")
