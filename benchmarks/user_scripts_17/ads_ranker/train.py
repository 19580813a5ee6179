"""Train the click-through-rate ranker.

    python train.py --config configs/prod.json
"""
from __future__ import annotations

import argparse
import logging
import os
import sys

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

from ranker.config import Config
from ranker.data import ClickDataset, prepare
from ranker.metrics import normalized_entropy, roc_auc
from ranker.model import DLRM

logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(levelname)s %(message)s")
log = logging.getLogger("ranker")


class Trainer:
    def __init__(self, cfg: Config) -> None:
        self.cfg = cfg
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        torch.manual_seed(cfg.train.seed)
        self.model = DLRM(cfg.data.n_dense, cfg.data.cardinalities, cfg.model).to(self.device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=cfg.train.lr)
        self.criterion = nn.BCELoss()
        self.step = 0
        self.best_auc = 0.0
        root = cfg.data.path
        self.train_loader = DataLoader(
            ClickDataset(os.path.join(root, "train")),
            batch_size=cfg.train.batch_size,
            shuffle=True,
            num_workers=cfg.train.num_workers,
            pin_memory=self.device.type == "cuda",
            drop_last=True,
        )
        self.valid_loader = DataLoader(
            ClickDataset(os.path.join(root, "valid")),
            batch_size=cfg.train.eval_batch_size,
            num_workers=cfg.train.num_workers,
            pin_memory=self.device.type == "cuda",
        )

    def to_device(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {key: value.to(self.device) for key, value in batch.items()}

    def train_step(self, batch: dict[str, torch.Tensor]) -> dict[str, float]:
        batch = self.to_device(batch)
        scores = self.model(batch["dense"], batch["cat"])
        loss = self.criterion(scores, batch["label"])
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        labels_np = batch["label"].cpu().numpy()
        scores_np = scores.detach().cpu().numpy()
        torch.cuda.empty_cache()
        return {"loss": loss.item(), "auc": roc_auc(labels_np, scores_np), "ctr": float(labels_np.mean())}

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        self.model.eval()
        labels, scores = [], []
        for batch in self.valid_loader:
            batch = self.to_device(batch)
            scores.append(self.model(batch["dense"], batch["cat"]).cpu().numpy())
            labels.append(batch["label"].cpu().numpy())
        self.model.train()
        y, p = np.concatenate(labels), np.concatenate(scores)
        return {"auc": roc_auc(y, p), "ne": normalized_entropy(y, p)}

    def save(self, name: str) -> None:
        os.makedirs(self.cfg.train.checkpoint_dir, exist_ok=True)
        torch.save(
            {"step": self.step, "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()},
            os.path.join(self.cfg.train.checkpoint_dir, name),
        )

    def fit(self) -> None:
        window: list[dict[str, float]] = []
        for epoch in range(self.cfg.train.epochs):
            for batch in self.train_loader:
                stats = self.train_step(batch)
                self.step += 1
                window.append(stats)
                if self.step % self.cfg.train.log_every == 0:
                    mean = {k: float(np.mean([s[k] for s in window])) for k in window[0]}
                    log.info("epoch %d step %d loss %.4f auc %.4f ctr %.4f",
                             epoch, self.step, mean["loss"], mean["auc"], mean["ctr"])
                    window = []
                if self.step % self.cfg.train.checkpoint_every == 0:
                    self.save("last.pt")
                if self.step % self.cfg.train.eval_every == 0:
                    result = self.evaluate()
                    log.info("valid step %d auc %.4f ne %.4f", self.step, result["auc"], result["ne"])
                    if result["auc"] > self.best_auc:
                        self.best_auc = result["auc"]
                        self.save("best.pt")
        log.info("best auc %.4f", self.best_auc)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", default="configs/prod.json")
    args = parser.parse_args()
    cfg = Config.load(args.config)
    prepare(cfg.data)
    log.info("tables %s", sum(cfg.data.cardinalities))
    Trainer(cfg).fit()


if __name__ == "__main__":
    main()
