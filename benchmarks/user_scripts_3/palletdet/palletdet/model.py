"""One-stage anchor detector."""
from __future__ import annotations

from typing import Dict, List, Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .boxes import box_iou, decode, encode, nms
from .config import Config


def _block(c_in: int, c_out: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(c_in, c_out, 3, stride=stride, padding=1, bias=False),
        nn.BatchNorm2d(c_out),
        nn.ReLU(inplace=True),
    )


class PalletDetector(nn.Module):
    def __init__(self, cfg: Config) -> None:
        super().__init__()
        w, k = cfg.model.width, len(cfg.model.anchor_sizes)
        self.cfg = cfg
        self.num_classes = cfg.data.num_classes
        self.backbone = nn.Sequential(
            _block(3, w, 2), _block(w, 2 * w, 2), _block(2 * w, 4 * w, 2), _block(4 * w, 4 * w, 1)
        )
        self.cls_head = nn.Conv2d(4 * w, k * self.num_classes, 3, padding=1)
        self.reg_head = nn.Conv2d(4 * w, k * 4, 3, padding=1)
        nn.init.constant_(self.cls_head.bias, -3.0)

    def _anchors(self, fh: int, fw: int, device: torch.device) -> Tensor:
        stride = self.cfg.model.stride
        out = []
        for y in range(fh):
            for x in range(fw):
                cx, cy = (x + 0.5) * stride, (y + 0.5) * stride
                for s in self.cfg.model.anchor_sizes:
                    out.append([cx - s / 2, cy - s / 2, cx + s / 2, cy + s / 2])
        return torch.tensor(out, device=device)

    def forward(self, images: List[Tensor], targets: Optional[List[Dict[str, Tensor]]] = None):
        x = torch.stack(images)
        mean = torch.tensor([0.36, 0.36, 0.36], device=x.device).view(1, 3, 1, 1)
        std = torch.tensor([0.15, 0.15, 0.15], device=x.device).view(1, 3, 1, 1)
        feat = self.backbone((x - mean) / std)
        b, _, fh, fw = feat.shape
        cls = self.cls_head(feat).permute(0, 2, 3, 1).reshape(b, -1, self.num_classes)
        reg = self.reg_head(feat).permute(0, 2, 3, 1).reshape(b, -1, 4)
        anchors = self._anchors(fh, fw, x.device)
        if targets is not None:
            return self._loss(cls, reg, anchors, targets)
        return [self._detect(c, r, anchors) for c, r in zip(cls.sigmoid(), reg)]

    def _loss(self, cls: Tensor, reg: Tensor, anchors: Tensor, targets: List[Dict[str, Tensor]]):
        cls_losses, reg_losses = [], []
        for c, r, t in zip(cls, reg, targets):
            gt_cls = torch.zeros_like(c)
            if t["boxes"].shape[0] == 0:
                cls_losses.append(F.binary_cross_entropy_with_logits(c, gt_cls, reduction="sum"))
                reg_losses.append(r.sum() * 0)
                continue
            iou = box_iou(anchors, t["boxes"])
            best, idx = iou.max(dim=1)
            pos = best >= 0.4
            pos[iou.argmax(dim=0)] = True          # every box gets at least one anchor
            gt_cls[pos, t["labels"][idx[pos]]] = 1.0
            num_pos = pos.sum().item()
            cls_losses.append(F.binary_cross_entropy_with_logits(c, gt_cls, reduction="sum") / num_pos)
            gt_reg = encode(anchors[pos], t["boxes"][idx[pos]])
            reg_losses.append(F.smooth_l1_loss(r[pos], gt_reg, reduction="sum") / num_pos)
        return {"cls": torch.stack(cls_losses).mean(), "reg": torch.stack(reg_losses).mean()}

    def _detect(self, scores: Tensor, deltas: Tensor, anchors: Tensor) -> Dict[str, Tensor]:
        best, labels = scores.max(dim=1)
        sel = best > self.cfg.score_threshold
        boxes = decode(anchors[sel], deltas[sel])
        best, labels = best[sel], labels[sel]
        keep = nms(boxes, best, self.cfg.nms_threshold)
        return {"boxes": boxes[keep], "scores": best[keep], "labels": labels[keep]}
