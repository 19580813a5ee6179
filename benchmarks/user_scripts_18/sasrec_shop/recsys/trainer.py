import logging
import os
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

from .evaluate import evaluate

logger = logging.getLogger(__name__)


class Trainer:
    def __init__(self, cfg: dict, model: nn.Module, dataset, parts, device):
        self.cfg = cfg["train"]
        self.data = cfg["data"]
        self.seed = cfg["seed"]
        self.device = device
        self.parts = parts
        self.model = model.to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=self.cfg["lr"], betas=(0.9, 0.98))
        self.criterion = nn.BCEWithLogitsLoss()
        self.loader = DataLoader(
            dataset,
            batch_size=self.cfg["batch_size"],
            shuffle=True,
            drop_last=True,
            num_workers=self.data["loader_workers"],
            pin_memory=device.type == "cuda",
            persistent_workers=self.data["loader_workers"] > 0,
        )
        self.history = []

    def train_step(self, seq, pos, neg):
        real = np.where(pos.numpy() != 0)
        seq = seq.to(self.device, non_blocking=True)
        pos = pos.to(self.device, non_blocking=True)
        neg = neg.to(self.device, non_blocking=True)
        pos_logits, neg_logits = self.model(seq, pos, neg)
        pos_labels = torch.ones(pos_logits.shape).to(self.device)
        neg_labels = torch.zeros(neg_logits.shape).to(self.device)
        loss = self.criterion(pos_logits[real], pos_labels[real])
        loss += self.criterion(neg_logits[real], neg_labels[real])
        for p in self.model.item_emb.parameters():
            loss += self.cfg["l2_emb"] * torch.sum(p ** 2)
        self.optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.cfg["grad_clip"])
        self.optimizer.step()
        return {"loss": loss.item(), "grad_norm": norm.item(), "auc": self.batch_auc(pos_logits, neg_logits, pos)}

    @staticmethod
    def batch_auc(pos_logits, neg_logits, pos):
        """Share of positions where the next item scores above the sampled one."""
        m = pos != 0
        return (pos_logits[m] > neg_logits[m]).float().mean().item()

    def fit(self):
        best, bad = -1.0, 0
        for epoch in range(1, self.cfg["epochs"] + 1):
            started = time.perf_counter()
            self.model.train()
            sums = {}
            for step, (seq, pos, neg) in enumerate(self.loader, 1):
                stats = self.train_step(seq, pos, neg)
                for key, value in stats.items():
                    sums[key] = sums.get(key, 0.0) + value
                if step % self.cfg["log_every"] == 0:
                    logger.info("epoch %d step %d %s", epoch, step,
                                " ".join(f"{k} {v / step:.4f}" for k, v in sums.items()))
            logger.info("epoch %d done, loss %.5f", epoch, sums["loss"] / len(self.loader))
            logger.debug("epoch took %.1f s", time.perf_counter() - started)
            if epoch % self.cfg["eval_every"]:
                continue
            metrics = self.evaluate("valid")
            logger.info("epoch %d valid %s", epoch, metrics)
            self.history.append(metrics)
            if metrics["ndcg@10"] > best:
                best, bad = metrics["ndcg@10"], 0
                self.save(epoch)
            else:
                bad += 1
                if bad >= self.cfg["early_stop"]:
                    logger.info("no gain in %d evaluations, stop", bad)
                    break
        logger.info("test %s", self.evaluate("test"))

    def evaluate(self, target: str):
        result = evaluate(self.model, self.parts, target, self.data["items"], self.data["max_len"],
                          self.cfg["eval_users"], self.cfg["eval_negatives"], self.seed, self.device)
        return {k: round(v, 4) for k, v in result.items()}

    def save(self, epoch: int):
        if not self.cfg["checkpoint_dir"]:
            return
        os.makedirs(self.cfg["checkpoint_dir"], exist_ok=True)
        torch.save({"epoch": epoch, "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()},
                   os.path.join(self.cfg["checkpoint_dir"], f"epoch{epoch:03d}.pt"))
