"""Box arithmetic (xyxy)."""
from __future__ import annotations

import torch
from torch import Tensor


def box_iou(a: Tensor, b: Tensor) -> Tensor:
    area_a = (a[:, 2] - a[:, 0]) * (a[:, 3] - a[:, 1])
    area_b = (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])
    lt = torch.max(a[:, None, :2], b[None, :, :2])
    rb = torch.min(a[:, None, 2:], b[None, :, 2:])
    wh = (rb - lt).clamp(min=0)
    inter = wh[..., 0] * wh[..., 1]
    return inter / (area_a[:, None] + area_b[None] - inter + 1e-6)


def encode(anchors: Tensor, boxes: Tensor) -> Tensor:
    wa, ha = anchors[:, 2] - anchors[:, 0], anchors[:, 3] - anchors[:, 1]
    wb, hb = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    dx = ((boxes[:, 0] + boxes[:, 2]) - (anchors[:, 0] + anchors[:, 2])) / (2 * wa)
    dy = ((boxes[:, 1] + boxes[:, 3]) - (anchors[:, 1] + anchors[:, 3])) / (2 * ha)
    return torch.stack([dx, dy, (wb / wa).log(), (hb / ha).log()], dim=1)


def decode(anchors: Tensor, deltas: Tensor) -> Tensor:
    wa, ha = anchors[:, 2] - anchors[:, 0], anchors[:, 3] - anchors[:, 1]
    cx = (anchors[:, 0] + anchors[:, 2]) / 2 + deltas[:, 0] * wa
    cy = (anchors[:, 1] + anchors[:, 3]) / 2 + deltas[:, 1] * ha
    w = wa * deltas[:, 2].clamp(max=4).exp()
    h = ha * deltas[:, 3].clamp(max=4).exp()
    return torch.stack([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2], dim=1)


def nms(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    """Greedy non-maximum suppression."""
    order = scores.argsort(descending=True)
    keep = []
    while order.numel() > 0:
        i = order[0].item()
        keep.append(i)
        if order.numel() == 1:
            break
        iou = box_iou(boxes[i:i + 1], boxes[order[1:]])[0]
        order = order[1:][iou <= threshold]
    return torch.tensor(keep, dtype=torch.long, device=boxes.device)
