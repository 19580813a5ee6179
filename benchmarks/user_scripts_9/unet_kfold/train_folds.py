# %% Salt-like segmentation, 5 folds.  Fork it, vote for it :)
import argparse
import copy
import gc
import os
import random
import time

import numpy as np
import torch
import torch.nn as nn
from torch.cuda.amp import GradScaler, autocast
from torch.utils.data import DataLoader, Dataset

from unet import UNet

ap = argparse.ArgumentParser()
ap.add_argument('--n-images', type=int, default=4000)
ap.add_argument('--size', type=int, default=128)
ap.add_argument('--base', type=int, default=32)
ap.add_argument('--folds', type=int, default=5)
ap.add_argument('--epochs', type=int, default=40)
ap.add_argument('--bs', type=int, default=16)
ap.add_argument('--lr', type=float, default=2e-3)
ap.add_argument('--patience', type=int, default=8)
args = ap.parse_args()

INPUT = './input'
SEED = 42
SIZE = args.size
device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)


# ---------------------------------------------------------------- data
def make_input(n):
    rng = np.random.RandomState(0)
    os.makedirs(INPUT + '/images', exist_ok=True)
    os.makedirs(INPUT + '/masks', exist_ok=True)
    yy, xx = np.mgrid[0:SIZE, 0:SIZE].astype(np.float64) / SIZE
    for i in range(n):
        f = '%05d_%d.npy' % (i, SIZE)
        if os.path.exists(INPUT + '/masks/' + f):
            continue
        layers = np.sin(2 * np.pi * (rng.uniform(3, 8) * yy + 0.3 * np.sin(4 * xx + rng.rand() * 6)))
        edge = rng.uniform(0.2, 0.9) + 0.15 * np.sin(2 * np.pi * (xx * rng.uniform(0.5, 2) + rng.rand()))
        mask = (yy > edge).astype(np.float64)
        img = 0.5 + 0.2 * layers * (1 - mask) + 0.1 * mask + rng.normal(0, 0.15, (SIZE, SIZE))
        np.save(INPUT + '/images/' + f, img)
        np.save(INPUT + '/masks/' + f, mask)


def add_depth_channels(image):
    out = np.zeros((3, SIZE, SIZE))
    out[0] = image
    for row, const in enumerate(np.linspace(0, 1, SIZE)):
        out[1, row, :] = const
    out[2] = out[0] * out[1]
    return out


class SaltDataset(Dataset):
    def __init__(self, ids, augment=False):
        self.ids = ids
        self.augment = augment

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        f = '%05d_%d.npy' % (self.ids[i], SIZE)
        image = np.load(INPUT + '/images/' + f)
        mask = np.load(INPUT + '/masks/' + f)
        if self.augment:
            if np.random.rand() < 0.5:
                image, mask = np.fliplr(image), np.fliplr(mask)
            if np.random.rand() < 0.5:
                image = np.clip(image + np.random.uniform(-0.1, 0.1), 0, 1)
        image = add_depth_channels(image)
        mask = np.ascontiguousarray(mask)[None]
        return torch.from_numpy(image).float(), torch.from_numpy(mask).float()


# ---------------------------------------------------------------- loss and metric
def dice_loss(logits, target, smooth=1.0):
    prob = torch.sigmoid(logits)
    total = 0
    for i in range(prob.size(0)):
        p = prob[i].view(-1)
        t = target[i].view(-1)
        inter = (p * t).sum()
        total = total + 1 - (2.0 * inter + smooth) / (p.sum() + t.sum() + smooth)
    return total / prob.size(0)


def criterion(logits, target):
    pos_weight = torch.tensor([1.2]).to(device)
    bce = nn.BCEWithLogitsLoss(pos_weight=pos_weight)(logits, target)
    return 0.6 * bce + 0.4 * dice_loss(logits, target)


def iou_metric(y_true, y_pred):
    """Mean over the images of the precision at IoU 0.5:0.95 (Kaggle metric)."""
    metric = []
    for b in range(y_true.shape[0]):
        t, p = y_true[b] > 0, y_pred[b] > 0
        if t.sum() == 0:
            metric.append(float(p.sum() == 0))
            continue
        iou = np.sum(t & p) / np.sum(t | p)
        metric.append(np.mean([iou > th for th in np.arange(0.5, 1.0, 0.05)]))
    return np.mean(metric)


# ---------------------------------------------------------------- train / valid
def train_one_epoch(model, loader, optimizer, scaler):
    model.train()
    total_loss = 0
    scores = []
    for image, mask in loader:
        image = image.to(device)
        mask = mask.to(device)
        optimizer.zero_grad()
        with autocast():
            logits = model(image)
            loss = criterion(logits, mask)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        scaler.step(optimizer)
        scaler.update()
        total_loss += loss
        pred = (torch.sigmoid(logits) > 0.5).detach().cpu().numpy()
        scores.append(iou_metric(mask.cpu().numpy(), pred))
        del image, mask, logits
        gc.collect()
    return total_loss.item() / len(loader), np.mean(scores)


def validate(model, loader):
    model.eval()
    total_loss = 0.0
    probs, masks = [], []
    with torch.no_grad():
        for image, mask in loader:
            image, mask = image.to(device), mask.to(device)
            logits = model(image)
            # flip TTA
            flipped = model(torch.flip(image, dims=[3]))
            total_loss += criterion(logits, mask).item()
            prob = (torch.sigmoid(logits) + torch.sigmoid(torch.flip(flipped, dims=[3]))) / 2
            probs.append(prob.cpu().numpy())
            masks.append(mask.cpu().numpy())
    probs = np.concatenate(probs)
    masks = np.concatenate(masks)
    return total_loss / len(loader), iou_metric(masks, probs > 0.5), probs, masks


def run_fold(fold, train_ids, valid_ids):
    seed_everything(SEED + fold)
    train_loader = DataLoader(SaltDataset(train_ids, True), batch_size=args.bs, shuffle=True,
                              num_workers=2, drop_last=True)
    valid_loader = DataLoader(SaltDataset(valid_ids), batch_size=args.bs * 2, shuffle=False, num_workers=2)

    model = UNet(base=args.base).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=1e-5)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
    scaler = GradScaler()

    best_score, best_state, wait = -1, None, 0
    for epoch in range(args.epochs):
        t0 = time.time()
        tr_loss, tr_iou = train_one_epoch(model, train_loader, optimizer, scaler)
        va_loss, va_iou, _, _ = validate(model, valid_loader)
        scheduler.step(va_loss)
        print('fold %d epoch %d  train %.4f iou %.4f  valid %.4f iou %.4f  lr %.1e' % (
            fold, epoch, tr_loss, tr_iou, va_loss, va_iou, optimizer.param_groups[0]['lr']))
        print('   time %.1fs' % (time.time() - t0))
        if va_iou > best_score:
            best_score, wait = va_iou, 0
            best_state = copy.deepcopy(model.state_dict())
        else:
            wait += 1
            if wait >= args.patience:
                break
    model.load_state_dict(best_state)
    torch.save(best_state, 'unet_fold%d.pth' % fold)

    _, _, probs, masks = validate(model, valid_loader)
    thresholds = np.arange(0.3, 0.71, 0.05)
    scores = [iou_metric(masks, probs > th) for th in thresholds]
    best = int(np.argmax(scores))
    print('fold %d best iou %.4f  threshold %.2f -> %.4f' % (fold, best_score, thresholds[best], scores[best]))
    del model, optimizer
    gc.collect()
    torch.cuda.empty_cache()
    return scores[best]


make_input(args.n_images)
ids = np.random.RandomState(SEED).permutation(args.n_images)
parts = np.array_split(ids, args.folds)
cv = []
for fold in range(args.folds):
    valid_ids = parts[fold]
    train_ids = np.concatenate([p for j, p in enumerate(parts) if j != fold])
    cv.append(run_fold(fold, train_ids, valid_ids))
print('CV: %s  mean %.4f' % (' '.join('%.4f' % c for c in cv), np.mean(cv)))
