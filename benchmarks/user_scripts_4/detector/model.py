import torch
import torch.nn as nn
import torch.nn.functional as F


def conv_bn(cin, cout, s=1):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, s, 1), nn.BatchNorm2d(cout), nn.LeakyReLU(0.1, inplace=True))


class TinyFCOS(nn.Module):
    strides = (8, 16)

    def __init__(self, num_classes=3, ch=32):
        super().__init__()
        self.stem = nn.Sequential(conv_bn(3, ch // 2, 2), conv_bn(ch // 2, ch, 2))
        self.c3 = nn.Sequential(conv_bn(ch, ch, 2), conv_bn(ch, ch))
        self.c4 = nn.Sequential(conv_bn(ch, ch, 2), conv_bn(ch, ch))
        # head is shared between the levels
        self.tower = nn.Sequential(nn.Conv2d(ch, ch, 3, 1, 1), nn.GroupNorm(8, ch), nn.ReLU())
        self.cls = nn.Conv2d(ch, num_classes, 3, 1, 1)
        self.reg = nn.Conv2d(ch, 4, 3, 1, 1)
        self.ctr = nn.Conv2d(ch, 1, 3, 1, 1)
        nn.init.constant_(self.cls.bias, -3.0)

    def make_points(self, h, w, stride):
        ys = (torch.arange(h).float() + 0.5) * stride
        xs = (torch.arange(w).float() + 0.5) * stride
        gy, gx = torch.meshgrid(ys, xs, indexing="ij")
        return torch.stack([gx.reshape(-1), gy.reshape(-1)], 1)

    def forward(self, x):
        mean = torch.tensor([0.35, 0.35, 0.35]).view(1, 3, 1, 1).to(x.device)
        x = (x - mean) / 0.2
        p3 = self.c3(self.stem(x))
        p4 = self.c4(p3)
        cls, reg, ctr, pts = [], [], [], []
        for f, s in zip((p3, p4), self.strides):
            t = self.tower(f)
            cls.append(self.cls(t).flatten(2).transpose(1, 2))
            reg.append(F.relu(self.reg(t)).flatten(2).transpose(1, 2) * s)
            ctr.append(self.ctr(t).flatten(2).transpose(1, 2))
            pts.append(self.make_points(f.shape[2], f.shape[3], s).to(x.device))
        return torch.cat(cls, 1), torch.cat(reg, 1), torch.cat(ctr, 1), torch.cat(pts)


def assign(points, boxes, labels, num_classes):
    """FCOS assignment of one image."""
    n = points.size(0)
    if len(boxes) == 0:
        return points.new_zeros(n, num_classes), points.new_zeros(n, 4), points.new_zeros(n), torch.zeros(n, dtype=torch.bool, device=points.device)
    l = points[:, None, 0] - boxes[None, :, 0]
    t = points[:, None, 1] - boxes[None, :, 1]
    r = boxes[None, :, 2] - points[:, None, 0]
    b = boxes[None, :, 3] - points[:, None, 1]
    ltrb = torch.stack([l, t, r, b], -1)
    inside = ltrb.min(-1).values > 0
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    cost = area[None].expand(n, -1).clone()
    cost[~inside] = 1e8
    best, idx = cost.min(1)
    pos = best < 1e8
    reg = ltrb[torch.arange(n), idx]
    cls = F.one_hot(labels[idx], num_classes).float() * pos[:, None]
    lr, tb = reg[:, [0, 2]].clamp(min=0.01), reg[:, [1, 3]].clamp(min=0.01)
    ctr = torch.sqrt((lr.min(1).values / lr.max(1).values) * (tb.min(1).values / tb.max(1).values))
    return cls, reg, ctr, pos


def focal_loss(logits, target, alpha=0.25, gamma=2.0):
    p = torch.sigmoid(logits)
    ce = F.binary_cross_entropy(p, target, reduction="none")
    p_t = p * target + (1 - p) * (1 - target)
    a_t = alpha * target + (1 - alpha) * (1 - target)
    return (a_t * (1 - p_t) ** gamma * ce).sum()


def iou_loss(pred, target):
    inter = (torch.min(pred[:, 0], target[:, 0]) + torch.min(pred[:, 2], target[:, 2])) * \
            (torch.min(pred[:, 1], target[:, 1]) + torch.min(pred[:, 3], target[:, 3]))
    a = (pred[:, 0] + pred[:, 2]) * (pred[:, 1] + pred[:, 3])
    b = (target[:, 0] + target[:, 2]) * (target[:, 1] + target[:, 3])
    iou = (inter + 1) / (a + b - inter + 1)
    return -iou.log()
