"""Usage: python fit.py config.yml [run_name]"""
import logging
import os
import sys
from pathlib import Path

import numpy as np
import torch
import yaml
from torch.utils.data import DataLoader, RandomSampler

from net import LoadFormer
from windows import Windows, load_csv

logging.basicConfig(level=logging.INFO, format="%(asctime)s | %(message)s", datefmt="%H:%M:%S")
logger = logging.getLogger(__name__)


def pick_device() -> torch.device:
    if torch.cuda.is_available():
        return torch.device("cuda")
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def quantile_loss(pred, target, quantiles, scale):
    """mean pinball loss over all quantiles, relative to the level of each series"""
    total = 0
    for i, q in enumerate(quantiles):
        err = (target - pred[..., i]) / scale
        total = total + torch.max(q * err, (q - 1) * err).mean()
    return total / len(quantiles)


class Stub:
    """stands in for wandb on the cluster"""

    def __init__(self, path: Path):
        self.file = open(path, "w")

    def log(self, **kw):
        self.file.write(" ".join(f"{k}={v:.6g}" for k, v in kw.items()) + "\n")
        self.file.flush()


class Fitter:
    def __init__(self, cfg: dict, run: str):
        self.cfg, self.t = cfg, cfg["train"]
        torch.manual_seed(cfg["seed"])
        self.device = pick_device()
        self.dir = Path("runs") / run
        self.dir.mkdir(parents=True, exist_ok=True)
        self.wandb = Stub(self.dir / "metrics.log")

        values = load_csv(cfg["csv"])
        n, c, h = len(values), cfg["context"], cfg["horizon"]
        a, b = int(n * 0.7), int(n * 0.85)
        self.train_set = Windows(values, 0, a, c, h, cfg["stride"])
        self.val_set = Windows(values, a - c, b, c, h, h)
        self.test_set = Windows(values, b - c, n, c, h, h)
        self.scale = torch.tensor(values[:a].mean(0), dtype=torch.float32) + 1.0
        sampler = RandomSampler(self.train_set, replacement=True,
                                num_samples=values.shape[1] * self.t["windows_per_series"])
        bs = self.t["batch_size"]
        self.train_dl = DataLoader(self.train_set, batch_size=bs, sampler=sampler)
        self.val_dl = DataLoader(self.val_set, batch_size=bs)
        self.test_dl = DataLoader(self.test_set, batch_size=bs)

        self.model = LoadFormer(values.shape[1], h, cfg["quantiles"], **cfg["model"]).to(self.device)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=self.t["lr"])
        self.sched = torch.optim.lr_scheduler.CosineAnnealingLR(self.opt, T_max=self.t["epochs"])
        logger.info("%d train windows, %.2fM parameters", len(self.train_set),
                    sum(p.numel() for p in self.model.parameters()) / 1e6)

    def step(self, batch):
        past, future, hours, who = [b.to(self.device) for b in batch]
        pred = self.model(past, hours, who)
        scale = self.scale[who.cpu()].to(self.device).unsqueeze(1)
        return pred, quantile_loss(pred, future, self.cfg["quantiles"], scale)

    def train_epoch(self, epoch: int) -> float:
        self.model.train()
        losses = []
        for i, batch in enumerate(self.train_dl):
            _, loss = self.step(batch)
            if not torch.isfinite(loss):
                logger.warning("non-finite loss at step %d, skipped", i)
                continue
            self.opt.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.t["clip"])
            self.opt.step()
            losses.append(loss.item())
            self.wandb.log(epoch=epoch, step=i, loss=loss.item(), lr=self.opt.param_groups[0]["lr"])
        return float(np.mean(losses))

    def validate(self, loader: DataLoader) -> dict:
        self.model.eval()
        losses, preds, targets, ids = [], [], [], []
        for batch in loader:
            pred, loss = self.step(batch)
            losses.append(loss.item())
            preds.append(pred.detach().cpu().numpy())
            targets.append(batch[1].numpy())
            ids.append(batch[3].numpy())
        pred, target = np.concatenate(preds), np.concatenate(targets)
        mid = self.cfg["quantiles"].index(0.5)
        nd = np.abs(pred[..., mid] - target).sum() / np.abs(target).sum()
        lo, hi = pred[..., 0], pred[..., -1]
        coverage = ((target >= lo) & (target <= hi)).mean()
        return {"loss": float(np.mean(losses)), "nd": float(nd), "coverage": float(coverage)}

    def run(self) -> None:
        best, bad = float("inf"), 0
        for epoch in range(self.t["epochs"]):
            train_loss = self.train_epoch(epoch)
            val = self.validate(self.val_dl)
            self.sched.step()
            logger.info("epoch %d train %.4f val %.4f nd %.4f coverage %.3f", epoch, train_loss,
                        val["loss"], val["nd"], val["coverage"])
            if val["loss"] < best:
                best, bad = val["loss"], 0
                torch.save(self.model.state_dict(), self.dir / "best.pt")
            else:
                bad += 1
                if bad >= self.t["patience"]:
                    logger.info("early stop")
                    break
        self.model.load_state_dict(torch.load(self.dir / "best.pt", map_location=self.device))
        logger.info("test %s", self.validate(self.test_dl))


if __name__ == "__main__":
    with open(sys.argv[1]) as f:
        config = yaml.safe_load(f)
    Fitter(config, sys.argv[2] if len(sys.argv) > 2 else os.uname().nodename).run()
