"""
CS-8803 Deep Learning for Microscopy, homework 4: find the cells.

A small CenterNet ("Objects as Points", Zhou et al. 2019) with three heads: class heatmap, box size, centre offset.
Two kinds of cells (round ones and elongated ones) on uneven background, about 10 to 40 in an image.
Usage: python hw4.py            (2400 images of 512x512, about 60 epochs)
"""
import argparse
import os
import random
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image, ImageDraw, ImageFilter
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument('--images', type=int, default=2400)
parser.add_argument('--size', type=int, default=512)
parser.add_argument('--batch', type=int, default=16)
parser.add_argument('--epochs', type=int, default=60)
parser.add_argument('--width', type=int, default=64)
parser.add_argument('--lr', type=float, default=5e-4)
parser.add_argument('--seed', type=int, default=4)
args = parser.parse_args()

random.seed(args.seed)
np.random.seed(args.seed)
torch.manual_seed(args.seed)
device = 'cuda' if torch.cuda.is_available() else 'cpu'

STRIDE = 4
CLASSES = 2
MAX_CELLS = 64


# ------------------------------------------------------------------ data
def draw_image(rng, size):
    """One picture and its list of (class, x0, y0, x1, y1)."""
    yy, xx = np.mgrid[0:size, 0:size] / size
    bg = 150 + 40 * np.sin(3 * xx + rng.uniform(0, 6)) * np.cos(2 * yy + rng.uniform(0, 6))
    img = Image.fromarray(bg.astype(np.uint8)).convert('RGB')
    d = ImageDraw.Draw(img)
    boxes = []
    for _ in range(rng.integers(size // 40, size // 14)):
        c = int(rng.integers(CLASSES))
        w = rng.uniform(14, 26)
        h = w if c == 0 else w * rng.uniform(1.6, 2.4)
        if c == 1 and rng.random() < 0.5:
            w, h = h, w
        x, y = rng.uniform(w / 2, size - w / 2), rng.uniform(h / 2, size - h / 2)
        box = (x - w / 2, y - h / 2, x + w / 2, y + h / 2)
        d.ellipse(box, fill=(int(rng.integers(120, 220)), int(rng.integers(40, 90)), int(rng.integers(90, 160))))
        d.ellipse((x - 3, y - 3, x + 3, y + 3), fill=(60, 20, 90))
        boxes.append((c,) + box)
    img = img.filter(ImageFilter.GaussianBlur(1))
    noisy = np.asarray(img).astype(np.float32) + rng.normal(0, 8, (size, size, 3))
    return Image.fromarray(noisy.clip(0, 255).astype(np.uint8)), boxes


def make_folder(folder, n, size, seed):
    rng = np.random.default_rng(seed)
    for i in range(n):
        img, boxes = draw_image(rng, size)
        img.save(os.path.join(folder, f'{i:05d}.png'))
        with open(os.path.join(folder, f'{i:05d}.txt'), 'w') as f:
            for b in boxes:
                f.write(' '.join(str(v) for v in b) + '\n')


def gaussian_radius(w, h):
    return max(1, int(min(w, h) / STRIDE / 3))


class Cells(Dataset):
    def __init__(self, folder, ids, train):
        self.folder = folder
        self.ids = ids
        self.train = train

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        name = os.path.join(self.folder, f'{self.ids[i]:05d}')
        img = np.array(Image.open(name + '.png'))
        boxes = [[float(v) for v in line.split()] for line in open(name + '.txt')]
        size = img.shape[0]
        if self.train and random.random() < 0.5:
            img = img[:, ::-1].copy()
            boxes = [[c, size - x1, y0, size - x0, y1] for c, x0, y0, x1, y1 in boxes]
        if self.train and random.random() < 0.5:
            img = img[::-1].copy()
            boxes = [[c, x0, size - y1, x1, size - y0] for c, x0, y0, x1, y1 in boxes]

        out = size // STRIDE
        heat = np.zeros((CLASSES, out, out), dtype=np.float32)
        wh = np.zeros((MAX_CELLS, 2), dtype=np.float32)
        off = np.zeros((MAX_CELLS, 2), dtype=np.float32)
        ind = np.zeros(MAX_CELLS, dtype=np.int64)
        mask = np.zeros(MAX_CELLS, dtype=np.float32)
        for k, (c, x0, y0, x1, y1) in enumerate(boxes):
            cx, cy = (x0 + x1) / 2 / STRIDE, (y0 + y1) / 2 / STRIDE
            ix, iy = min(int(cx), out - 1), min(int(cy), out - 1)
            sigma = gaussian_radius(x1 - x0, y1 - y0)
            for y in range(out):
                for x in range(out):
                    g = np.exp(-((x - ix) ** 2 + (y - iy) ** 2) / (2 * sigma ** 2))
                    heat[int(c), y, x] = max(heat[int(c), y, x], g)
            wh[k] = (x1 - x0, y1 - y0)
            off[k] = (cx - ix, cy - iy)
            ind[k] = iy * out + ix
            mask[k] = 1
        img = torch.from_numpy(img).permute(2, 0, 1).float() / 255
        img = (img - 0.5) / 0.25
        target = np.full((MAX_CELLS, 5), -1, dtype=np.float32)
        target[:len(boxes)] = boxes
        return img, torch.from_numpy(heat), torch.from_numpy(wh), torch.from_numpy(off), \
            torch.from_numpy(ind), torch.from_numpy(mask), torch.from_numpy(target)


# ------------------------------------------------------------------ model
class Block(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.short = nn.Identity()
        if stride != 1 or cin != cout:
            self.short = nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.short(x))


class Up(nn.Module):
    def __init__(self, cin, cskip, cout):
        super().__init__()
        self.conv = nn.Conv2d(cin + cskip, cout, 3, 1, 1)
        self.bn = nn.BatchNorm2d(cout)

    def forward(self, x, skip):
        x = F.interpolate(x, scale_factor=2, mode='bilinear', align_corners=False)
        return F.relu(self.bn(self.conv(torch.cat([x, skip], 1))))


class CenterNet(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, w, 7, 2, 3), nn.BatchNorm2d(w), nn.ReLU())
        self.layer1 = nn.Sequential(Block(w, w, 2), Block(w, w))                    # 1/4
        self.layer2 = nn.Sequential(Block(w, 2 * w, 2), Block(2 * w, 2 * w))        # 1/8
        self.layer3 = nn.Sequential(Block(2 * w, 4 * w, 2), Block(4 * w, 4 * w))    # 1/16
        self.up2 = Up(4 * w, 2 * w, 2 * w)
        self.up1 = Up(2 * w, w, w)
        self.heat = self.head(w, CLASSES)
        self.wh = self.head(w, 2)
        self.off = self.head(w, 2)
        self.heat[-1].bias.data.fill_(-2.19)

    def head(self, w, n):
        return nn.Sequential(nn.Conv2d(w, w, 3, 1, 1), nn.ReLU(), nn.Conv2d(w, n, 1))

    def forward(self, x):
        a = self.layer1(self.stem(x))
        b = self.layer2(a)
        c = self.layer3(b)
        y = self.up1(self.up2(c, b), a)
        return torch.sigmoid(self.heat(y)).clamp(1e-4, 1 - 1e-4), self.wh(y), self.off(y)


# ------------------------------------------------------------------ losses
def focal_loss(pred, gt):
    pos = gt.eq(1).float()
    neg = 1 - pos
    pos_loss = torch.log(pred) * (1 - pred) ** 2 * pos
    neg_loss = torch.log(1 - pred) * pred ** 2 * (1 - gt) ** 4 * neg
    num_pos = pos.sum()
    if num_pos == 0:
        return -neg_loss.sum()
    return -(pos_loss.sum() + neg_loss.sum()) / num_pos


def l1_at_centres(pred, target, ind, mask):
    """pred (B,2,H,W) against target (B,K,2) at the flat positions ind (B,K)."""
    loss = torch.zeros(1).to(device)
    count = 0
    for b in range(pred.shape[0]):
        flat = pred[b].view(2, -1)
        for k in range(ind.shape[1]):
            if mask[b, k] > 0:
                loss = loss + torch.abs(flat[:, ind[b, k]] - target[b, k]).sum()
                count += 1
    return loss / max(count, 1)


# ------------------------------------------------------------------ decoding and scoring
def decode(heat, wh, off, top=100):
    peak = F.max_pool2d(heat, 3, 1, 1)
    heat = heat * (peak == heat).float()
    B, C, H, W = heat.shape
    scores, idx = heat.view(B, -1).topk(top)
    cls = idx // (H * W)
    pos = idx % (H * W)
    wh = wh.view(B, 2, -1).gather(2, pos.unsqueeze(1).expand(-1, 2, -1))
    off = off.view(B, 2, -1).gather(2, pos.unsqueeze(1).expand(-1, 2, -1))
    x = ((pos % W) + off[:, 0]) * STRIDE
    y = ((pos // W) + off[:, 1]) * STRIDE
    return torch.stack([cls.float(), x - wh[:, 0] / 2, y - wh[:, 1] / 2, x + wh[:, 0] / 2, y + wh[:, 1] / 2,
                        scores], dim=2)


def iou(a, b):
    x0, y0 = torch.max(a[0], b[0]), torch.max(a[1], b[1])
    x1, y1 = torch.min(a[2], b[2]), torch.min(a[3], b[3])
    inter = (x1 - x0).clamp(min=0) * (y1 - y0).clamp(min=0)
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - inter
    return inter / union


def evaluate(model, loader, threshold=0.3):
    """F1 at IoU 0.5. Greedy matching, best score first, every true cell can be used once."""
    model.eval()
    tp = fp = fn = 0
    val_loss = 0
    for img, heat, wh, off, ind, mask, target in loader:
        img, heat, target = img.to(device), heat.to(device), target.to(device)
        p_heat, p_wh, p_off = model(img)
        val_loss += focal_loss(p_heat, heat)
        dets = decode(p_heat, p_wh, p_off)
        for b in range(img.shape[0]):
            true = [t for t in target[b] if t[0] >= 0]
            used = [False] * len(true)
            for det in dets[b]:
                if det[5] < threshold:
                    break
                best, best_j = 0.5, -1
                for j, t in enumerate(true):
                    if used[j] or t[0] != det[0]:
                        continue
                    v = iou(det[1:5], t[1:5]).item()
                    if v > best:
                        best, best_j = v, j
                if best_j >= 0:
                    used[best_j] = True
                    tp += 1
                else:
                    fp += 1
            fn += len(true) - sum(used)
    return 2 * tp / max(2 * tp + fp + fn, 1), (val_loss / len(loader)).item()


# ------------------------------------------------------------------ training
folder = tempfile.mkdtemp(prefix='cells_')
make_folder(folder, args.images, args.size, args.seed)
n_val = args.images // 8
ids = list(range(args.images))
train_loader = DataLoader(Cells(folder, ids[n_val:], True), batch_size=args.batch, shuffle=True)
val_loader = DataLoader(Cells(folder, ids[:n_val], False), batch_size=args.batch, shuffle=False)

model = CenterNet(args.width).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [int(args.epochs * 0.7), int(args.epochs * 0.9)])

best_f1 = -1
for epoch in range(args.epochs):
    t0 = time.time()
    model.train()
    epoch_loss = 0
    for i, (img, heat, wh, off, ind, mask, _) in enumerate(train_loader):
        img = img.to(device)
        heat = heat.to(device)
        wh = wh.to(device)
        off = off.to(device)
        ind = ind.to(device)
        mask = mask.to(device)
        p_heat, p_wh, p_off = model(img)
        loss_h = focal_loss(p_heat, heat)
        loss_w = l1_at_centres(p_wh, wh, ind, mask)
        loss_o = l1_at_centres(p_off, off, ind, mask)
        loss = loss_h + 0.1 * loss_w + loss_o
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        epoch_loss += loss
        if i % 20 == 0:
            print(f'epoch {epoch} [{i}/{len(train_loader)}] loss {loss.item():.4f} '
                  f'(heat {loss_h.item():.4f}, wh {loss_w.item():.4f}, off {loss_o.item():.4f})')
    scheduler.step()
    f1, val_loss = evaluate(model, val_loader)
    print(f'== epoch {epoch}: train {epoch_loss.item() / len(train_loader):.4f}, val heat {val_loss:.4f}, '
          f'F1 {f1:.4f}, {time.time() - t0:.1f} s')
    if f1 > best_f1:
        best_f1 = f1
        torch.save(model.state_dict(), os.path.join(folder, 'best.pt'))
print(f'best F1 {best_f1:.4f}')
