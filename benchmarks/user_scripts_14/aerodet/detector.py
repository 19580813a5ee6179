"""Objects as points: one heatmap per class, offset and size at the centre."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from engine import Module


class Residual(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.skip = None
        if stride != 1 or cin != cout:
            self.skip = nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (x if self.skip is None else self.skip(x)))


def head(cin, cout, bias):
    out = nn.Conv2d(64, cout, 1)
    nn.init.constant_(out.bias, bias)
    return nn.Sequential(nn.Conv2d(cin, 64, 3, padding=1), nn.ReLU(inplace=True), out)


class Net(nn.Module):
    def __init__(self, n_classes, width, blocks):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
                                  nn.MaxPool2d(3, 2, 1))
        layers, c = [], width
        for k, n in enumerate(blocks):
            cout = width * 2 ** k
            for j in range(n):
                layers.append(Residual(c, cout, 2 if j == 0 and k > 0 else 1))
                c = cout
        self.body = nn.Sequential(*layers)
        ups = []
        for _ in range(len(blocks) - 1):
            ups += [nn.ConvTranspose2d(c, c // 2, 4, 2, 1), nn.BatchNorm2d(c // 2), nn.ReLU(inplace=True)]
            c //= 2
        self.ups = nn.Sequential(*ups)
        self.heat, self.size, self.shift = head(c, n_classes, -2.19), head(c, 2, 0.0), head(c, 2, 0.5)

    def forward(self, x):
        f = self.ups(self.body(self.stem(x)))
        return self.heat(f), self.size(f), self.shift(f)


def focal(logits, target):
    p = torch.sigmoid(logits.float()).clamp(1e-4, 1 - 1e-4)
    pos = target.eq(1)
    neg = ~pos
    n_pos = pos.sum()
    neg_loss = (torch.log(1 - p[neg]) * p[neg] ** 2 * (1 - target[neg]) ** 4).sum()
    if n_pos == 0:
        return -neg_loss
    pos_loss = (torch.log(p[pos]) * (1 - p[pos]) ** 2).sum()
    return -(pos_loss + neg_loss) / n_pos


def at_centres(maps, index):
    b, c = maps.shape[:2]
    flat = maps.view(b, c, -1)
    return flat.gather(2, index.unsqueeze(1).expand(-1, c, -1)).transpose(1, 2)


class AerialDetector(Module):
    def __init__(self, n_classes=5, width=64, blocks=(3, 4, 6, 3), lr=5e-4, warmup=500, top=100, thresh=0.3):
        super().__init__()
        self.n_classes, self.lr, self.warmup, self.top, self.thresh = n_classes, lr, warmup, top, thresh
        self.net = Net(n_classes, width, blocks)

    def losses(self, batch):
        heat, size, shift = self.net(batch["image"])
        mask = batch["mask"].unsqueeze(2)
        n = mask.sum().clamp(min=1)
        l_heat = focal(heat, batch["heat"])
        l_size = (F.l1_loss(at_centres(size, batch["index"]).float(), batch["size"], reduction="none") * mask).sum() / n
        l_shift = (F.l1_loss(at_centres(shift, batch["index"]).float(), batch["shift"], reduction="none") * mask).sum() / n
        return l_heat, l_size, l_shift

    def training_step(self, batch, i):
        l_heat, l_size, l_shift = self.losses(batch)
        loss = l_heat + 0.1 * l_size + l_shift
        self.log("loss", loss)
        self.log("heat", l_heat)
        self.log("size", l_size)
        return loss

    def decode(self, image):
        heat, size, shift = self.net(image)
        heat = torch.sigmoid(heat)
        heat = heat * (F.max_pool2d(heat, 3, 1, 1) == heat)
        b, c, h, w = heat.shape
        score, at = heat.view(b, -1).topk(min(self.top, c * h * w))
        cls, cell = at // (h * w), at % (h * w)
        wh, off = at_centres(size, cell), at_centres(shift, cell)
        x = cell % w + off[..., 0]
        y = cell // w + off[..., 1]
        return score, cls, torch.stack([x - wh[..., 0] / 2, y - wh[..., 1] / 2, x + wh[..., 0] / 2, y + wh[..., 1] / 2], -1)

    def validation_step(self, batch, i):
        score, cls, box = self.decode(batch["image"])
        found = []
        for b in range(score.shape[0]):
            for k in range(score.shape[1]):
                if score[b, k].item() > self.thresh:
                    found.append((b, cls[b, k].item(), score[b, k].item(), box[b, k].tolist()))
        truth = batch["boxes"].tolist()
        hits = misses = 0
        used = set()
        for b, c, s, bb in sorted(found, key=lambda d: -d[2]):
            best, arg = 0.5, None
            for j, t in enumerate(truth[b]):
                if t[4] == c and (b, j) not in used:
                    v = iou(bb, t)
                    if v > best:
                        best, arg = v, j
            if arg is None:
                misses += 1
            else:
                hits += 1
                used.add((b, arg))
        n = sum(t[4] >= 0 for img in truth for t in img)
        return hits, misses, n

    def validation_end(self, outputs):
        hits, misses, n = (sum(o[k] for o in outputs) for k in range(3))
        precision, recall = hits / max(hits + misses, 1), hits / max(n, 1)
        return {"precision": precision, "recall": recall, "f1": 2 * precision * recall / max(precision + recall, 1e-9)}

    def configure_optimizers(self):
        total = self.trainer.total_steps
        opt = torch.optim.AdamW(self.parameters(), lr=self.lr, weight_decay=1e-4)
        warm = min(self.warmup, total // 5)
        fn = lambda s: (s + 1) / (warm + 1) if s < warm else 0.5 * (1 + math.cos(math.pi * (s - warm) / max(1, total - warm)))
        return opt, torch.optim.lr_scheduler.LambdaLR(opt, fn)


def iou(a, b):
    w = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    h = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    inter = w * h
    return inter / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - inter)
