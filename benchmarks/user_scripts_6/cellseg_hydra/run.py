"""Cell segmentation.  python run.py train.epochs=5 optim.lr=1e-3 model=unet_small

A very small stand-in for hydra: conf/config.yaml, `defaults` groups and dotted overrides.
"""
import contextlib
import os
import random
import sys
import tempfile

import numpy as np
import torch
import yaml
from torch.cuda.amp import GradScaler, autocast
from torch.utils.data import DataLoader

import nn_parts  # noqa: F401  (fills the registries)
from cells import CellDataset
from registry import LOSSES, MODELS, OPTIMS

HERE = os.path.dirname(os.path.abspath(__file__))


class Cfg(dict):
    __getattr__ = dict.__getitem__

    @classmethod
    def wrap(cls, d):
        return cls({k: cls.wrap(v) if isinstance(v, dict) else v for k, v in d.items()})


def compose(overrides):
    with open(os.path.join(HERE, "conf", "config.yaml")) as f:
        cfg = yaml.safe_load(f)
    groups = {k: v for d in cfg.pop("defaults") for k, v in d.items()}
    plain = []
    for o in overrides:
        k, v = o.split("=", 1)
        if k in groups:
            groups[k] = v
        else:
            v = yaml.safe_load(v)
            if isinstance(v, str):      # yaml reads 1e-3 as a string
                with contextlib.suppress(ValueError):
                    v = float(v)
            plain.append((k, v))
    for g, name in groups.items():
        with open(os.path.join(HERE, "conf", g, name + ".yaml")) as f:
            cfg[g] = yaml.safe_load(f)
    for k, v in plain:
        node = cfg
        *path, leaf = k.split(".")
        for p in path:
            node = node[p]
        node[leaf] = v
    return Cfg.wrap(cfg)


OPTIMS.register("adamw")(lambda params, lr, weight_decay: torch.optim.AdamW(params, lr=lr, weight_decay=weight_decay))
OPTIMS.register("sgd")(lambda params, lr, weight_decay: torch.optim.SGD(params, lr, 0.9, weight_decay=weight_decay))


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)


def make_loader(cfg, train):
    d = cfg.data
    ds = CellDataset(d.n_train if train else d.n_val, d.size, seed=cfg.seed + (0 if train else 1), augment=train)
    return DataLoader(ds, batch_size=d.batch_size, shuffle=train, drop_last=train,
                      num_workers=d.num_workers, pin_memory=d.pin_memory)


def iou(prob, target, thr=0.5):
    p, t = prob > thr, target > 0.5
    inter = (p & t).sum().item()
    union = (p | t).sum().item()
    return inter / max(union, 1)


class Experiment:
    def __init__(self, cfg):
        self.cfg = cfg
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model = MODELS.build(cfg.model).to(self.device)
        self.losses = {k: (w, LOSSES[k]()) for k, w in cfg.loss.items()}
        o = cfg.optim
        self.optimizer = OPTIMS[o.name](self.model.parameters(), o.lr, o.weight_decay)
        self.train_loader, self.val_loader = make_loader(cfg, True), make_loader(cfg, False)
        self.sched = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, max_lr=cfg.sched.max_lr, total_steps=cfg.train.epochs * len(self.train_loader))
        self.amp = cfg.train.amp and self.device == "cuda"
        self.scaler = GradScaler(enabled=self.amp)
        self.step = 0

    def compute_loss(self, prob, mask):
        parts = {k: w * fn(prob, mask) for k, (w, fn) in self.losses.items()}
        return sum(parts.values()), parts

    def train_epoch(self, epoch):
        self.model.train()
        meters = {k: 0.0 for k in list(self.losses) + ["total", "iou"]}
        for i, (img, mask) in enumerate(self.train_loader):
            img, mask = img.to(self.device), mask.to(self.device)
            self.optimizer.zero_grad(set_to_none=False)
            with autocast(enabled=self.amp):
                prob = self.model(img)
                loss, parts = self.compute_loss(prob, mask)
            self.scaler.scale(loss).backward()
            norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.cfg.optim.clip_norm)
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.sched.step()
            self.step += 1

            for k, v in parts.items():
                meters[k] += v.item()
            meters["total"] += loss.item()
            meters["iou"] += iou(prob, mask)
            if (i + 1) % self.cfg.train.log_every == 0:
                print(f"e{epoch} s{self.step:03d} loss {loss.item():.6f} gnorm {norm.item():.5f} "
                      f"lr {self.sched.get_last_lr()[0]:.6f}")
        n = len(self.train_loader)
        print("train " + " ".join(f"{k}={v / n:.6f}" for k, v in meters.items()))

    def validate(self):
        self.model.eval()
        tot, scores = 0.0, []
        for img, mask in self.val_loader:
            img, mask = img.to(self.device), mask.to(self.device)
            prob = self.model(img)
            loss, _ = self.compute_loss(prob, mask)
            tot += loss
            for p, m in zip(prob, mask):
                scores.append(iou(p, m))
        tot = tot.item() / len(self.val_loader)
        print(f"val loss={tot:.6f} mIoU={np.mean(scores):.6f}")
        return tot

    def fit(self):
        best = float("inf")
        path = os.path.join(tempfile.mkdtemp(), "best.pt")
        for epoch in range(self.cfg.train.epochs):
            self.train_epoch(epoch)
            val = self.validate()
            if val < best:
                best = val
                torch.save({"model": self.model.state_dict(), "optim": self.optimizer.state_dict(),
                            "sched": self.sched.state_dict(), "step": self.step}, path)
        print(f"best {best:.6f}")


if __name__ == "__main__":
    cfg = compose(sys.argv[1:])
    seed_everything(cfg.seed)
    if cfg.train.deterministic:
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False
    Experiment(cfg).fit()
