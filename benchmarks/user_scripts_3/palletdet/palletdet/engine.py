"""Training and evaluation of one epoch."""
from __future__ import annotations

import logging
import math
import sys
from collections import defaultdict
from typing import Dict

import torch
from torch.utils.data import DataLoader

from .boxes import box_iou
from .model import PalletDetector

logger = logging.getLogger(__name__)


def train_one_epoch(
    model: PalletDetector,
    optimizer: torch.optim.Optimizer,
    loader: DataLoader,
    device: torch.device,
    epoch: int,
    grad_clip: float,
    log_every: int = 10,
) -> Dict[str, float]:
    model.train()
    totals: Dict[str, float] = defaultdict(float)
    for step, (images, targets) in enumerate(loader):
        images = [image.to(device) for image in images]
        targets = [{k: v.to(device) for k, v in t.items()} for t in targets]

        loss_dict = model(images, targets)
        loss = sum(loss_dict.values())
        loss_value = loss.item()
        if not math.isfinite(loss_value):
            logger.error("Loss is %s, stopping training: %s", loss_value, loss_dict)
            sys.exit(1)

        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
        optimizer.step()

        for name, value in loss_dict.items():
            totals[name] += value.item()
        if step % log_every == 0:
            logger.info("epoch %d step %d/%d loss %.4f", epoch, step, len(loader), loss_value)
    return {k: v / len(loader) for k, v in totals.items()}


@torch.no_grad()
def evaluate(model: PalletDetector, loader: DataLoader, device: torch.device) -> Dict[str, float]:
    model.eval()
    tp = fp = num_gt = 0
    for images, targets in loader:
        outputs = model([image.to(device) for image in images])
        for out, target in zip(outputs, targets):
            boxes, labels = out["boxes"].cpu(), out["labels"].cpu()
            num_gt += len(target["boxes"])
            taken = set()
            for box, label in zip(boxes, labels):
                iou = box_iou(box[None], target["boxes"])[0] if len(target["boxes"]) else torch.zeros(0)
                hit = [j for j in range(len(iou))
                       if iou[j] > 0.5 and target["labels"][j] == label and j not in taken]
                if hit:
                    taken.add(hit[0])
                    tp += 1
                else:
                    fp += 1
    precision, recall = tp / max(tp + fp, 1), tp / max(num_gt, 1)
    return {"precision": precision, "recall": recall, "f1": 2 * precision * recall / max(precision + recall, 1e-9)}
