"""MoCo v2 style pretraining on the shapes set.

usage: python main.py configs/shapes_r18.yaml [key.sub=value ...]
"""
import math
import os
import sys
import time

import torch
import torch.nn as nn
import yaml
from torch.utils.data import DataLoader

import make_data
from sslkit.dataset import ShapeFolder
from sslkit.knn import knn_accuracy
from sslkit.moco import MoCo
from sslkit.resnet import ResNet18
from sslkit.transforms import SimCLRTransform, TwoCrops, to_tensor


def load_config(argv):
    with open(argv[0]) as f:
        cfg = yaml.safe_load(f)
    for item in argv[1:]:
        key, value = item.split("=", 1)
        node = cfg
        *path, last = key.split(".")
        for p in path:
            node = node[p]
        node[last] = yaml.safe_load(value)
    return cfg


class AverageMeter:
    def __init__(self):
        self.sum = self.count = 0.0

    def update(self, v, n=1):
        self.sum += v * n
        self.count += n

    @property
    def avg(self):
        return self.sum / max(1, self.count)


def accuracy(output, target, topk=(1,)):
    with torch.no_grad():
        maxk = max(topk)
        _, pred = output.topk(maxk, 1, True, True)
        correct = pred.t().eq(target.view(1, -1).expand_as(pred.t()))
        return [correct[:k].reshape(-1).float().sum(0).item() * 100.0 / target.size(0) for k in topk]


def set_lr(opt, cfg, it, per_epoch):
    o = cfg["optim"]
    warm, total = o["warmup_epochs"] * per_epoch, o["epochs"] * per_epoch
    lr = o["lr"] * (it / max(1, warm) if it < warm else 0.5 * (1 + math.cos(math.pi * (it - warm) / (total - warm))))
    for g in opt.param_groups:
        g["lr"] = lr
    return lr


def main():
    cfg = load_config(sys.argv[1:])
    d, m, o = cfg["data"], cfg["model"], cfg["optim"]
    torch.manual_seed(0)
    if cfg["threads"]:  # be kind on the login node
        torch.set_num_threads(cfg["threads"])
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if not os.path.isdir(d["root"]):
        make_data.write(d["root"], dict(unlabeled=d["n_unlabeled"], labeled=d["n_labeled"], test=d["n_test"]), d["size"])
    os.makedirs(cfg["out"], exist_ok=True)

    train = ShapeFolder(d["root"], "unlabeled", TwoCrops(SimCLRTransform(d["size"], d["min_scale"], d["jitter"])))
    train_loader = DataLoader(train, o["batch_size"], shuffle=True, num_workers=d["workers"],
                              pin_memory=True, drop_last=True)
    bank_loader = DataLoader(ShapeFolder(d["root"], "labeled", to_tensor), o["batch_size"], num_workers=d["workers"])
    test_loader = DataLoader(ShapeFolder(d["root"], "test", to_tensor), o["batch_size"], num_workers=d["workers"])

    model = MoCo(ResNet18(m["width"], m["dim"]), m["dim"], m["queue"], m["momentum"], m["temperature"],
                 m["bn_splits"]).to(device)
    criterion = nn.CrossEntropyLoss()
    opt = torch.optim.SGD(model.encoder_q.parameters(), lr=o["lr"], momentum=0.9, weight_decay=o["weight_decay"])

    it = 0
    for epoch in range(o["epochs"]):
        losses, top1, top5 = AverageMeter(), AverageMeter(), AverageMeter()
        end = time.time()
        for (im_q, im_k), _ in train_loader:
            lr = set_lr(opt, cfg, it, len(train_loader))
            im_q = im_q.to(device)
            im_k = im_k.to(device)
            logits, labels = model(im_q, im_k)
            loss = criterion(logits, labels)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()

            acc1, acc5 = accuracy(logits, labels, topk=(1, 5))
            losses.update(loss.item(), im_q.size(0))
            top1.update(acc1, im_q.size(0))
            top5.update(acc5, im_q.size(0))
            it += 1
            if it % cfg["log_every"] == 0:
                print(f"it {it:6d} lr {lr:.4f} loss {losses.avg:.4f} acc@1 {top1.avg:5.2f} acc@5 {top5.avg:5.2f}", flush=True)
        line = f"epoch {epoch:3d} {time.time() - end:6.1f}s loss {losses.avg:.4f} acc@1 {top1.avg:.2f}"
        if (epoch + 1) % cfg["eval"]["every"] == 0:
            acc = knn_accuracy(model.encoder_q, bank_loader, test_loader, device, cfg["eval"]["k"], cfg["eval"]["temperature"])
            line += f" knn {100 * acc:.2f}"
        print(line, flush=True)
        torch.save({"epoch": epoch + 1, "model": model.state_dict(), "optimizer": opt.state_dict()},
                   os.path.join(cfg["out"], "last.pt"))


if __name__ == "__main__":
    main()
