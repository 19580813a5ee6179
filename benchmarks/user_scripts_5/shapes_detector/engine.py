import math
import random
import sys
import time

import torch
import torch.nn.functional as F

from model import box_iou


def warmup_lr_scheduler(optimizer, iters, factor):
    def f(x):
        return 1 if x >= iters else factor * (1 - x / iters) + x / iters
    return torch.optim.lr_scheduler.LambdaLR(optimizer, f)


def train_one_epoch(model, optimizer, data_loader, device, epoch, print_freq=10, sizes=(96, 128, 160)):
    model.train()
    model.freeze_stem_bn()
    lr_scheduler = None
    if epoch == 0:
        lr_scheduler = warmup_lr_scheduler(optimizer, min(20, len(data_loader) - 1), 1e-3)

    meters = {"loss": [], "loss_cls": [], "loss_box": []}
    t = time.time()
    for it, (images, targets) in enumerate(data_loader):
        # multi-scale training, one size for the whole batch
        size = random.choice(sizes)
        scale = size / images[0].shape[-1]
        images = [F.interpolate(im[None], size=(size, size), mode="bilinear", align_corners=False)[0] for im in images]
        images = [im.to(device) for im in images]
        targets = [{k: (v.to(device) if torch.is_tensor(v) else v) for k, v in t.items()} for t in targets]
        for tg in targets:
            tg["boxes"] = tg["boxes"] * scale

        loss_dict = model(images, targets)
        losses = sum(loss for loss in loss_dict.values())
        loss_value = losses.item()
        if not math.isfinite(loss_value):
            print("Loss is {}, stopping training".format(loss_value))
            print(loss_dict)
            sys.exit(1)

        optimizer.zero_grad()
        losses.backward()
        optimizer.step()
        if lr_scheduler is not None:
            lr_scheduler.step()

        meters["loss"].append(loss_value)
        for k, v in loss_dict.items():
            meters[k].append(v.item())
        if it % print_freq == 0:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            print("Epoch [{}] [{}/{}] lr {:.5f} ".format(epoch, it, len(data_loader), optimizer.param_groups[0]["lr"])
                  + "  ".join("{} {:.4f}".format(k, sum(v) / len(v)) for k, v in meters.items())
                  + "  {:.3f}s".format(time.time() - t))
    return meters


@torch.no_grad()
def evaluate(model, data_loader, device):
    cpu = torch.device("cpu")
    model.eval()
    tp = n_gt = n_det = 0
    model_time = 0
    for images, targets in data_loader:
        images = list(img.to(device) for img in images)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        t0 = time.time()
        outputs = model(images)
        outputs = [{k: v.to(cpu) for k, v in o.items()} for o in outputs]
        model_time += time.time() - t0
        for o, tg in zip(outputs, targets):
            n_gt += len(tg["boxes"])
            n_det += len(o["boxes"])
            if len(o["boxes"]) == 0:
                continue
            iou = box_iou(o["boxes"], tg["boxes"])
            used = set()
            for d in range(len(o["boxes"])):
                j = iou[d].argmax().item()
                if iou[d, j] > 0.5 and j not in used and o["labels"][d] == tg["labels"][j]:
                    tp += 1
                    used.add(j)
    print("eval: recall {:.3f} precision {:.3f}  (model time {:.2f}s)".format(tp / n_gt, tp / max(1, n_det), model_time))
    return tp / n_gt
