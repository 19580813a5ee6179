"""
A small anchor-free detector: spots, rings and crosses on noise.

Rare kinds are drawn more often, the picture size changes every few batches, the stem is frozen with its norm statistics,
and a slow copy of the model is what gets judged and saved.
"""
import argparse
import copy
import math
import random

import numpy as np
import torch
from torch import nn, optim
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

KINDS = ("spot", "ring", "cross")
SIZE = 32


class Pictures(Dataset):
    def __init__(self, count, seed, augment):
        rng = np.random.default_rng(seed)
        self.augment = augment
        self.pictures, self.boxes, self.kinds = [], [], []
        v, u = np.mgrid[0:SIZE, 0:SIZE]
        for _ in range(count):
            picture = rng.normal(0, 0.25, (SIZE, SIZE))
            boxes, kinds = [], []
            for _ in range(rng.integers(1, 4)):
                kind = rng.choice(3, p=[0.6, 0.3, 0.1])
                r = rng.uniform(2.5, 6)
                cx, cy = rng.uniform(r, SIZE - r, 2)
                if any(math.hypot(cx - (a + c) / 2, cy - (b + d) / 2) < r + (c - a) / 2 for a, b, c, d in boxes):
                    continue
                far = np.hypot(u - cx, v - cy)
                if kind == 0:
                    picture += far < r
                elif kind == 1:
                    picture += np.abs(far - r + 1) < 1
                else:
                    picture += (far < r) & ((np.abs(u - cx) < 1) | (np.abs(v - cy) < 1))
                boxes.append((cx - r, cy - r, cx + r, cy + r))
                kinds.append(kind)
            self.pictures.append(picture.astype(np.float32))
            self.boxes.append(np.array(boxes, dtype=np.float32))
            self.kinds.append(np.array(kinds))

    def repeat_factors(self, threshold=0.3):
        share = np.array([np.mean([k in kinds for kinds in self.kinds]) for k in range(3)])
        factor = np.maximum(1.0, np.sqrt(threshold / share))
        return [max(factor[k] for k in kinds) for kinds in self.kinds]

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, i):
        picture, boxes = self.pictures[i], self.boxes[i].copy()
        if self.augment:
            if random.random() < 0.5:
                picture = picture[:, ::-1]
                boxes[:, [0, 2]] = SIZE - boxes[:, [2, 0]]
            if np.random.rand() < 0.5:
                picture = picture[::-1]
                boxes[:, [1, 3]] = SIZE - boxes[:, [3, 1]]
            picture = picture * np.random.uniform(0.7, 1.3) + np.random.normal(0, 0.1)
        return torch.from_numpy(np.ascontiguousarray(picture, dtype=np.float32))[None], torch.from_numpy(boxes), torch.from_numpy(self.kinds[i])


def collate(batch):
    pictures, boxes, kinds = zip(*batch)
    return torch.stack(pictures), list(boxes), list(kinds)


def block(a, b, stride):
    return nn.Sequential(nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True))


class Detector(nn.Module):
    stride = 4

    def __init__(self, width=12):
        super().__init__()
        self.stem = block(1, width, 1)
        self.backbone = nn.Sequential(block(width, 2 * width, 2), block(2 * width, 3 * width, 2), block(3 * width, 3 * width, 1))
        self.neck = block(3 * width, 3 * width, 1)
        self.kind = nn.Conv2d(3 * width, len(KINDS), 1)
        self.box = nn.Conv2d(3 * width, 4, 1)
        nn.init.constant_(self.kind.bias, -math.log(0.99 / 0.01))
        self.stem.requires_grad_(False)

    def train(self, mode=True):
        super().train(mode)
        self.stem.eval()
        return self

    def forward(self, x):
        h = self.neck(self.backbone(self.stem(x)))
        n, _, rows, columns = h.shape
        y, x = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
        centers = (torch.stack([x, y], -1).reshape(-1, 2) + 0.5) * self.stride
        kinds = self.kind(h).permute(0, 2, 3, 1).reshape(n, -1, len(KINDS))
        sides = self.box(h).permute(0, 2, 3, 1).reshape(n, -1, 4).clamp(max=4).exp() * self.stride
        boxes = torch.cat([centers - sides[..., :2], centers + sides[..., 2:]], -1)
        return kinds, boxes, centers


def overlap(a, b):
    """Generalised overlap of boxes, pair by pair."""
    low, high = torch.maximum(a[..., :2], b[..., :2]), torch.minimum(a[..., 2:], b[..., 2:])
    inner = (high - low).clamp(min=0).prod(-1)
    union = (a[..., 2:] - a[..., :2]).prod(-1) + (b[..., 2:] - b[..., :2]).prod(-1) - inner
    hull = (torch.maximum(a[..., 2:], b[..., 2:]) - torch.minimum(a[..., :2], b[..., :2])).prod(-1)
    iou = inner / union.clamp(min=1e-6)
    return iou, iou - (hull - union) / hull.clamp(min=1e-6)


def assign(centers, boxes):
    """To every place the smallest box around its middle, or -1."""
    middle, half = (boxes[:, :2] + boxes[:, 2:]) / 2, (boxes[:, 2:] - boxes[:, :2]) / 2
    inside = ((centers[:, None] - middle).abs() < half * 0.6).all(-1)
    cost = torch.where(inside, half.prod(-1).expand_as(inside), torch.tensor(float("inf")))
    found = cost.argmin(1)
    found[~inside.any(1)] = -1
    return found


def focal(logits, target, alpha=0.25, gamma=2.0):
    p = logits.sigmoid()
    loss = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
    right = p * target + (1 - p) * (1 - target)
    return (alpha * target + (1 - alpha) * (1 - target)) * loss * (1 - right) ** gamma


def detection_loss(out, boxes, kinds):
    logits, predicted, centers = out
    kind_loss, box_loss, positives = 0.0, 0.0, 0
    for i in range(len(boxes)):
        which = assign(centers, boxes[i])
        hit = which >= 0
        target = torch.zeros_like(logits[i])
        target[hit, kinds[i][which[hit]]] = 1.0
        kind_loss = kind_loss + focal(logits[i], target).sum()
        box_loss = box_loss + (1 - overlap(predicted[i][hit], boxes[i][which[hit]])[1]).sum()
        positives += int(hit.sum())
    positives = max(positives, 1)
    return kind_loss / positives, box_loss / positives


class Slow:
    """Weights and statistics that follow slowly."""

    def __init__(self, model, decay, ramp=60):
        self.model = copy.deepcopy(model).eval()
        self.decay, self.ramp, self.updates = decay, ramp, 0

    @torch.no_grad()
    def update(self, model):
        self.updates += 1
        d = self.decay * (1 - math.exp(-self.updates / self.ramp))
        state = model.state_dict()
        for k, v in self.model.state_dict().items():
            if v.dtype.is_floating_point:
                v *= d
                v += (1 - d) * state[k].detach()


@torch.no_grad()
def evaluate(model, loader, threshold=0.05):
    model.eval()
    scores, hits, total = [[] for _ in KINDS], [[] for _ in KINDS], [0] * len(KINDS)
    for pictures, boxes, kinds in loader:
        logits, predicted, _ = model(pictures)
        for i in range(len(pictures)):
            p = logits[i].sigmoid()
            for k in range(len(KINDS)):
                truth = boxes[i][kinds[i] == k]
                total[k] += len(truth)
                keep = (p[:, k] > threshold).nonzero().squeeze(1)
                keep = keep[p[keep, k].argsort(descending=True)][:40]
                taken, kept = torch.zeros(len(truth), dtype=torch.bool), []
                for j in keep.tolist():
                    if kept and overlap(predicted[i][kept], predicted[i][j])[0].max() > 0.5:
                        continue
                    kept.append(j)
                    scores[k].append(p[j, k].item())
                    good = False
                    if len(truth):
                        iou = overlap(truth, predicted[i][j])[0].masked_fill(taken, -1)
                        at = int(iou.argmax())
                        if iou[at] > 0.5:
                            taken[at], good = True, True
                    hits[k].append(good)
    precision = []
    for k in range(len(KINDS)):
        order = np.argsort(-np.array(scores[k]), kind="stable")
        good = np.array(hits[k], dtype=float)[order]
        if not len(good):
            precision.append(0.0)
            continue
        p, r = good.cumsum() / np.arange(1, len(good) + 1), good.cumsum() / max(total[k], 1)
        p = np.maximum.accumulate(p[::-1])[::-1]
        precision.append(float((np.diff(np.concatenate([[0.0], r])) * p).sum()))
    return precision


def main(opt):
    random.seed(opt.seed)
    np.random.seed(opt.seed)
    torch.manual_seed(opt.seed)
    train_set, held_set = Pictures(opt.pictures, 1, True), Pictures(90, 2, False)
    sampler = WeightedRandomSampler(train_set.repeat_factors(), len(train_set), replacement=True)
    train = DataLoader(train_set, opt.batch_size, sampler=sampler, collate_fn=collate, drop_last=True)
    held = DataLoader(held_set, 30, collate_fn=collate)
    model = Detector()
    slow = Slow(model, opt.decay)
    groups = {"backbone": [], "head": [], "plain": []}
    for name, p in model.named_parameters():
        if p.requires_grad:
            groups["plain" if p.ndim == 1 else "backbone" if name.startswith("backbone") else "head"].append(p)
    optimizer = optim.SGD([
        {"params": groups["head"], "lr": opt.lr, "weight_decay": 5e-4},
        {"params": groups["backbone"], "lr": opt.lr * 0.5, "weight_decay": 5e-4},
        {"params": groups["plain"], "lr": opt.lr, "weight_decay": 0.0},
    ], momentum=0.9, nesterov=True)
    base = [g["lr"] for g in optimizer.param_groups]
    n, total = 0, opt.epochs * len(train)
    best = 0.0
    for epoch in range(opt.epochs):
        model.train()
        sums = np.zeros(2)
        for pictures, boxes, kinds in train:
            if n % 5 == 0:
                size = random.choice([24, 32, 40])
            if size != SIZE:
                pictures = F.interpolate(pictures, size=(size, size), mode="bilinear", align_corners=False)
                boxes = [b * (size / SIZE) for b in boxes]
            part = n / opt.warmup if n < opt.warmup else 0.5 * (1 + math.cos(math.pi * (n - opt.warmup) / (total - opt.warmup)))
            for group, lr in zip(optimizer.param_groups, base):
                group["lr"] = lr * part
            kind_loss, box_loss = detection_loss(model(pictures), boxes, kinds)
            loss = kind_loss + opt.box_weight * box_loss
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_([p for g in groups.values() for p in g], opt.clip)
            optimizer.step()
            slow.update(model)
            sums += kind_loss.item(), box_loss.item()
            n += 1
        precision = evaluate(slow.model, held)
        mean = float(np.mean(precision))
        print(f"{epoch + 1}/{opt.epochs} kind {sums[0] / len(train):.4f} box {sums[1] / len(train):.4f} AP " + " ".join(f"{k} {a:.3f}" for k, a in zip(KINDS, precision)) + f" mAP {mean:.4f}")
        if mean >= best:
            best = mean
            torch.save({"model": slow.model.state_dict(), "updates": slow.updates, "epoch": epoch, "map": mean}, "spots_best.pt")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "spots_last.pt")
    print(f"best mAP {best:.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--pictures", type=int, default=320)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--warmup", type=int, default=20)
    parser.add_argument("--box-weight", type=float, default=1.0)
    parser.add_argument("--clip", type=float, default=3.0)
    parser.add_argument("--decay", type=float, default=0.97)
    parser.add_argument("--seed", type=int, default=13)
    main(parser.parse_args())
