import math
import sys
import torch
import torch.nn.functional as F
from model import assign, focal_loss, iou_loss


class SmoothedValue:
    def __init__(self):
        self.total, self.count, self.last = 0.0, 0, 0.0

    def update(self, v):
        self.last = v
        self.total += v
        self.count += 1

    @property
    def avg(self):
        return self.total / max(1, self.count)


def compute_loss(outputs, targets, num_classes=3):
    cls, reg, ctr, pts = outputs
    losses = {"cls": 0, "reg": 0, "ctr": 0}
    num_pos = 0
    for i, t in enumerate(targets):
        tc, tr, tctr, pos = assign(pts, t["boxes"], t["labels"], num_classes)
        losses["cls"] = losses["cls"] + focal_loss(cls[i], tc)
        if pos.sum() > 0:
            losses["reg"] = losses["reg"] + (iou_loss(reg[i][pos], tr[pos]) * tctr[pos]).sum()
            losses["ctr"] = losses["ctr"] + F.binary_cross_entropy_with_logits(ctr[i][pos][:, 0], tctr[pos], reduction="sum")
            num_pos += pos.sum().item()
    return {k: v / max(1, num_pos) for k, v in losses.items()}


def train_one_epoch(model, optimizer, loader, device, epoch, print_freq=10):
    model.train()
    meters = {}
    warmup = None
    if epoch == 0:
        warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 0.01, total_iters=min(20, len(loader) - 1))
    for it, (images, targets) in enumerate(loader):
        images = images.to(device)
        targets = [{k: v.to(device) if torch.is_tensor(v) else v for k, v in t.items()} for t in targets]
        loss_dict = compute_loss(model(images), targets)
        loss = sum(loss_dict.values())
        loss_value = loss.item()
        if not math.isfinite(loss_value):
            print(f"Loss is {loss_value}, stopping training", loss_dict)
            sys.exit(1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if warmup is not None:
            warmup.step()
        for k, v in loss_dict.items():
            meters.setdefault(k, SmoothedValue()).update(float(v))
        if it % print_freq == 0:
            print(f"Epoch [{epoch}] [{it}/{len(loader)}] loss {loss_value:.4f} " +
                  " ".join(f"{k} {m.avg:.4f}" for k, m in meters.items()))


def nms(boxes, scores, thr):
    order = scores.argsort(descending=True)
    keep = []
    while order.numel() > 0:
        i = order[0].item()
        keep.append(i)
        if order.numel() == 1:
            break
        rest = boxes[order[1:]]
        lt = torch.max(boxes[i, :2], rest[:, :2])
        rb = torch.min(boxes[i, 2:], rest[:, 2:])
        wh = (rb - lt).clamp(min=0)
        inter = wh[:, 0] * wh[:, 1]
        area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        iou = inter / (area[i] + area[order[1:]] - inter)
        order = order[1:][iou <= thr]
    return keep


@torch.inference_mode()
def evaluate(model, loader, device):
    model.eval()
    hits, total, found = 0, 0, 0
    for images, targets in loader:
        cls, reg, ctr, pts = model(images.to(device))
        scores = (cls.sigmoid() * ctr.sigmoid()).sqrt()
        for i in range(len(targets)):
            s, label = scores[i].max(1)
            m = s > 0.3
            boxes = torch.cat([pts[m] - reg[i][m][:, :2], pts[m] + reg[i][m][:, 2:]], 1)
            keep = nms(boxes, s[m], 0.5)
            found += len(keep)
            gt = targets[i]["boxes"].to(device)
            total += len(gt)
            for g in gt:
                ok = False
                for k in keep:
                    b = boxes[k]
                    iw = min(b[2], g[2]) - max(b[0], g[0])
                    ih = min(b[3], g[3]) - max(b[1], g[1])
                    if iw > 0 and ih > 0:
                        inter = iw * ih
                        u = (b[2] - b[0]) * (b[3] - b[1]) + (g[2] - g[0]) * (g[3] - g[1]) - inter
                        if inter / u > 0.5:
                            ok = True
                hits += ok
    return hits / max(1, total), found
