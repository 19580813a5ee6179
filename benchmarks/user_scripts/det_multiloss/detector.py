import torch
import torch.nn as nn
import torch.nn.functional as F

STRIDE = 8


def conv_bn(i, o, s):
    return nn.Sequential(nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class FrozenScale(nn.Module):
    def __init__(self, init=1.0):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(init))

    def forward(self, x):
        return x * self.scale


class Detector(nn.Module):
    def __init__(self, classes=3, width=16):
        super().__init__()
        self.stem = nn.Sequential(conv_bn(3, width, 2), conv_bn(width, 2 * width, 2))
        self.stage = nn.Sequential(conv_bn(2 * width, 2 * width, 2), conv_bn(2 * width, 2 * width, 1))
        self.cls, self.box, self.obj = (nn.Conv2d(2 * width, k, 1) for k in (classes, 4, 1))
        self.sc = FrozenScale(1.0)
        nn.init.constant_(self.obj.bias, -2.0)
        self.classes = classes

    def forward(self, x, *rest, **kw):
        f = self.stage(self.stem(x))
        c, b, o = self.cls(f), F.softplus(self.sc(self.box(f))) * STRIDE, self.obj(f)
        return {'cls': c, 'ltrb': b, 'obj': o.squeeze(1), 'feat': f}


def locations(h, w, device):
    ys = (torch.arange(h).float() + 0.5) * STRIDE
    xs = (torch.arange(w).float() + 0.5) * STRIDE
    gy, gx = torch.meshgrid(ys, xs, indexing='ij')
    return torch.stack([gx, gy], -1).to(device)


def assign(targets, h, w, device):
    """FCOS-like, smallest box wins; python loops over images and boxes"""
    loc = locations(h, w, device)
    obj = torch.zeros(len(targets), h, w).to(device)
    cls = torch.full((len(targets), h, w), -1, dtype=torch.long).to(device)
    reg = torch.zeros(len(targets), 4, h, w).to(device)
    for n, t in enumerate(targets):
        if len(t['boxes']) == 0:
            continue
        area = (t['boxes'][:, 2] - t['boxes'][:, 0]) * (t['boxes'][:, 3] - t['boxes'][:, 1])
        for k in area.argsort(descending=True).tolist():
            x1, y1, x2, y2 = t['boxes'][k]
            d = torch.stack([loc[..., 0] - x1, loc[..., 1] - y1, x2 - loc[..., 0], y2 - loc[..., 1]])
            inside = d.min(0)[0] > 0
            obj[n][inside] = 1
            cls[n][inside] = t['labels'][k].item()
            reg[n][:, inside] = d[:, inside]
    return obj, cls, reg


def iou_ltrb(p, t, eps=1e-7):
    inter = (torch.min(p[0], t[0]) + torch.min(p[2], t[2])) * (torch.min(p[1], t[1]) + torch.min(p[3], t[3]))
    a = (p[0] + p[2]) * (p[1] + p[3])
    b = (t[0] + t[2]) * (t[1] + t[3])
    return (inter + eps) / (a + b - inter + eps)


def losses(out, targets):
    b, h, w = out['obj'].shape
    obj, cls, reg = assign(targets, h, w, out['obj'].device)
    pos = obj > 0
    n_pos = max(1, pos.sum().item())
    p = torch.sigmoid(out['obj'].float())
    # focal, hand written
    pt = torch.where(pos, p, 1 - p)
    l_obj = (-(1 - pt).pow(2) * torch.log(pt.clamp(min=1e-6))).sum() / n_pos
    if not pos.any():
        zero = out['ltrb'].sum() * 0 + out['cls'].sum() * 0
        return {'obj': l_obj, 'cls': zero, 'box': zero.clone()}
    l_cls = F.cross_entropy(out['cls'].float().permute(0, 2, 3, 1)[pos], cls[pos])
    pr, tr = out['ltrb'].float().permute(1, 0, 2, 3)[:, pos], reg.permute(1, 0, 2, 3)[:, pos]
    assert pr.dtype == torch.float32, pr.dtype
    l_box = -torch.log(iou_ltrb(pr, tr)).mean()
    return {'obj': l_obj, 'cls': l_cls, 'box': l_box}
