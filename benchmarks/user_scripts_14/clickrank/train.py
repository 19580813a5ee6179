#!/usr/bin/env python
"""python train.py [config.yaml] [key.sub=value ...]"""
import json
import logging
import os
import sys
import time

import numpy as np
import torch
import torch.nn as nn
import yaml
from torch.utils.data import DataLoader

from features import ClickLog, dense_stats, load_log, write_log
from net import ClickNet

log = logging.getLogger("clickrank")


def read_config(argv):
    path = "config.yaml"
    if argv and "=" not in argv[0]:
        path = argv.pop(0)
    with open(path) as f:
        cfg = yaml.safe_load(f)
    for item in argv:
        key, value = item.split("=", 1)
        node = cfg
        *parents, leaf = key.split(".")
        for p in parents:
            node = node[p]
        if leaf not in node:
            raise SystemExit(f"unknown key {key}")
        node[leaf] = yaml.safe_load(value)
    return cfg


def auc(label, score):
    order = np.argsort(score, kind="mergesort")
    rank = np.empty(len(score))
    rank[order] = np.arange(1, len(score) + 1)
    pos = label.sum()
    return (rank[label > 0].sum() - pos * (pos + 1) / 2) / max(pos * (len(label) - pos), 1)


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        torch.manual_seed(cfg["seed"])
        if cfg["threads"]:
            torch.set_num_threads(cfg["threads"])
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        write_log(cfg["data"])
        parts = load_log(cfg["data"])
        mean, std = dense_stats(parts["train"])
        t = cfg["train"]
        self.train_loader = DataLoader(
            ClickLog(parts["train"], mean, std), t["batch_size"], shuffle=True,
            num_workers=t["workers"], pin_memory=True, drop_last=True,
        )
        self.val_loader = DataLoader(
            ClickLog(parts["val"], mean, std), cfg["eval"]["batch_size"],
            num_workers=t["workers"], pin_memory=True,
        )
        m = cfg["model"]
        self.net = ClickNet(cfg["data"]["cards"], cfg["data"]["dense"], m["dim"], m["bottom"], m["top"],
                            m["cross_layers"], m["dropout"]).to(self.device)
        tables = list(self.net.tables.parameters()) + list(self.net.history.parameters())
        ids = {id(p) for p in tables}
        rest = [p for p in self.net.parameters() if id(p) not in ids]
        self.opt_emb = torch.optim.Adagrad(tables, lr=t["emb_lr"], initial_accumulator_value=0.1)
        self.opt = torch.optim.Adam(rest, lr=t["lr"])
        self.warmup = torch.optim.lr_scheduler.LambdaLR(self.opt, lambda s: min(1.0, (s + 1) / t["warmup_steps"]))
        self.loss = nn.BCEWithLogitsLoss()
        self.step = 0
        self.history = []

    def to_device(self, batch):
        return {k: v.to(self.device, non_blocking=True) for k, v in batch.items()}

    def fit(self):
        t = self.cfg["train"]
        for epoch in range(t["epochs"]):
            self.net.train()
            losses, clicks, began = [], 0, time.time()
            for batch in self.train_loader:
                b = self.to_device(batch)
                logit = self.net(b["dense"], b["cat"], b["hist"])
                loss = self.loss(logit, b["label"])
                if torch.isnan(loss):
                    raise RuntimeError(f"loss is NaN at step {self.step}")
                self.opt.zero_grad()
                self.opt_emb.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_([p for g in self.opt.param_groups for p in g["params"]], t["clip"])
                self.opt.step()
                self.opt_emb.step()
                self.warmup.step()
                self.step += 1
                losses.append(loss)
                clicks += int(b["label"].sum())
                if self.step % t["log_every"] == 0:
                    recent = torch.stack(losses[-t["log_every"]:]).mean().item()
                    log.info("step %d  loss %.5f  ctr %.4f  %.0f rows/s", self.step, recent,
                             clicks / (len(losses) * t["batch_size"]),
                             len(losses) * t["batch_size"] / (time.time() - began))
            m = self.validate()
            m.update(epoch=epoch, train_loss=float(np.mean([l.item() for l in losses])))
            self.history.append(m)
            log.info("epoch %d  train %.5f  val %.5f  auc %.4f  calibration %.3f",
                     epoch, m["train_loss"], m["loss"], m["auc"], m["calibration"])
            self.save(m)

    @torch.no_grad()
    def validate(self):
        self.net.eval()
        scores, labels = [], []
        for batch in self.val_loader:
            b = self.to_device(batch)
            scores.append(torch.sigmoid(self.net(b["dense"], b["cat"], b["hist"])).cpu().numpy())
            labels.append(b["label"].cpu().numpy())
        p = np.concatenate(scores).astype(np.float64).clip(1e-7, 1 - 1e-7)
        y = np.concatenate(labels)
        w = np.where(y > 0, 1.0, self.cfg["eval"]["negatives_weight"])
        ll = -(w * (y * np.log(p) + (1 - y) * np.log(1 - p))).sum() / w.sum()
        return {"loss": float(ll), "auc": float(auc(y, p)), "calibration": float(p.sum() / max(y.sum(), 1))}

    def save(self, m):
        out = self.cfg["out"]
        os.makedirs(out, exist_ok=True)
        with open(os.path.join(out, "metrics.json"), "w") as f:
            json.dump(self.history, f, indent=1)
        if m["loss"] <= min(h["loss"] for h in self.history):
            torch.save({"net": self.net.state_dict(), "config": self.cfg}, os.path.join(out, "serving.pt"))


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    cfg = read_config(sys.argv[1:])
    Trainer(cfg).fit()


if __name__ == "__main__":
    main()
