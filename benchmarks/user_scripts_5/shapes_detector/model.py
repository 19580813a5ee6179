import torch
import torch.nn as nn
import torch.nn.functional as F

STRIDE = 8


def conv_bn(cin, cout, stride=1):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True))


class CenterDet(nn.Module):
    """tiny FCOS/CenterNet style detector, one level (stride 8)"""

    def __init__(self, num_classes=3, width=32):
        super().__init__()
        self.num_classes = num_classes
        self.stem = nn.Sequential(conv_bn(3, width // 2, 2), conv_bn(width // 2, width, 2))
        self.body = nn.Sequential(conv_bn(width, width * 2, 2), conv_bn(width * 2, width * 2), conv_bn(width * 2, width * 2))
        self.cls = nn.Conv2d(width * 2, num_classes, 1)
        self.reg = nn.Conv2d(width * 2, 4, 1)
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1))
        self.register_buffer("std", torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1))
        nn.init.constant_(self.cls.bias, -4.6)

    def freeze_stem_bn(self):
        for m in self.stem.modules():
            if isinstance(m, nn.BatchNorm2d):
                m.eval()
                for p in m.parameters():
                    p.requires_grad = False

    def forward(self, images, targets=None):
        x = torch.stack([(im - self.mean) / self.std for im in images])
        f = self.body(self.stem(x))
        cls = torch.sigmoid(self.cls(f))
        reg = F.softplus(self.reg(f)) * STRIDE
        if targets is None:
            return self.postprocess(cls, reg)
        return self.losses(cls, reg, targets)

    # ------------------------------------------------------------------ targets
    def assign(self, targets, h, w, device):
        B = len(targets)
        heat = torch.zeros(B, self.num_classes, h, w, device=device)
        box_t = torch.zeros(B, 4, h, w, device=device)
        pos = torch.zeros(B, h, w, dtype=torch.bool, device=device)
        for b, t in enumerate(targets):
            for box, lab in zip(t["boxes"], t["labels"]):
                x1, y1, x2, y2 = [v.item() for v in box]
                cx, cy = (x1 + x2) / 2, (y1 + y2) / 2
                ix, iy = min(int(cx / STRIDE), w - 1), min(int(cy / STRIDE), h - 1)
                heat[b, lab, iy, ix] = 1
                pos[b, iy, ix] = True
                px, py = (ix + 0.5) * STRIDE, (iy + 0.5) * STRIDE
                box_t[b, :, iy, ix] = torch.tensor([px - x1, py - y1, x2 - px, y2 - py]).to(device)
        return heat, box_t, pos

    def losses(self, cls, reg, targets):
        heat, box_t, pos = self.assign(targets, cls.shape[2], cls.shape[3], cls.device)
        num_pos = max(1, pos.sum().item())
        p = cls.clamp(1e-6, 1 - 1e-6)
        # focal loss
        ce = -(heat * torch.log(p) + (1 - heat) * torch.log(1 - p))
        pt = heat * p + (1 - heat) * (1 - p)
        alpha = heat * 0.25 + (1 - heat) * 0.75
        loss_cls = (alpha * (1 - pt) ** 2 * ce).sum() / num_pos
        r = reg.permute(0, 2, 3, 1)[pos]
        t = box_t.permute(0, 2, 3, 1)[pos]
        inter = torch.min(r[:, :2], t[:, :2]).sum(1) * 0
        iw = torch.min(r[:, 0], t[:, 0]) + torch.min(r[:, 2], t[:, 2])
        ih = torch.min(r[:, 1], t[:, 1]) + torch.min(r[:, 3], t[:, 3])
        inter = inter + iw.clamp(min=0) * ih.clamp(min=0)
        union = (r[:, 0] + r[:, 2]) * (r[:, 1] + r[:, 3]) + (t[:, 0] + t[:, 2]) * (t[:, 1] + t[:, 3]) - inter
        iou = inter / (union + 1e-7)
        loss_box = -torch.log(iou.clamp(min=1e-7)).sum() / num_pos
        return {"loss_cls": loss_cls, "loss_box": loss_box}

    # ------------------------------------------------------------------ inference
    def postprocess(self, cls, reg, thr=0.05, topk=50):
        out = []
        B, C, h, w = cls.shape
        for b in range(B):
            scores, idx = cls[b].flatten().topk(min(topk, C * h * w))
            keep = scores > thr
            scores, idx = scores[keep], idx[keep]
            lab = idx // (h * w)
            iy, ix = (idx % (h * w)) // w, idx % w
            px, py = (ix + 0.5) * STRIDE, (iy + 0.5) * STRIDE
            d = reg[b, :, iy, ix]
            boxes = torch.stack([px - d[0], py - d[1], px + d[2], py + d[3]], 1)
            k = nms(boxes, scores, 0.5)
            out.append({"boxes": boxes[k], "scores": scores[k], "labels": lab[k]})
        return out


def box_iou(a, b):
    lt = torch.max(a[:, None, :2], b[None, :, :2])
    rb = torch.min(a[:, None, 2:], b[None, :, 2:])
    wh = (rb - lt).clamp(min=0)
    inter = wh[..., 0] * wh[..., 1]
    area = lambda z: (z[:, 2] - z[:, 0]) * (z[:, 3] - z[:, 1])
    return inter / (area(a)[:, None] + area(b)[None] - inter + 1e-7)


def nms(boxes, scores, thr):
    order = scores.argsort(descending=True)
    keep = []
    while order.numel() > 0:
        i = order[0].item()
        keep.append(i)
        if order.numel() == 1:
            break
        iou = box_iou(boxes[i:i + 1], boxes[order[1:]])[0]
        order = order[1:][iou <= thr]
    return torch.tensor(keep, dtype=torch.long, device=boxes.device)
