from __future__ import annotations

import logging
import random
import sys

import numpy as np
import torch
from torch.utils.data import DataLoader

from segkit.config import Config
from segkit.data import Augment, PolypDataset, list_pairs
from segkit.losses import batch_scores, seg_loss
from segkit.model import UNet

log = logging.getLogger("train")


class Mean:
    def __init__(self) -> None:
        self.total, self.n = 0.0, 0

    def add(self, value: float, n: int = 1) -> None:
        self.total += value * n
        self.n += n

    @property
    def value(self) -> float:
        return self.total / max(self.n, 1)


def seed_everything(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def run_epoch(model, loader, device, cfg: Config, optimizer=None) -> dict[str, float]:
    training = optimizer is not None
    model.train(training)
    loss_mean, dice_mean, iou_mean = Mean(), Mean(), Mean()
    for step, batch in enumerate(loader):
        image = batch["image"].to(device)
        mask = batch["mask"].to(device)
        prob = model(image)
        loss = seg_loss(prob, mask)
        if training:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        loss_mean.add(loss.item(), len(image))
        dice, iou = batch_scores(prob.detach().cpu().numpy(), mask.cpu().numpy(), cfg.threshold)
        dice_mean.add(dice, len(image))
        iou_mean.add(iou, len(image))
        if training and step % 20 == 0:
            log.info("step %4d loss %.4f dice %.3f", step, loss_mean.value, dice_mean.value)
    return {"loss": loss_mean.value, "dice": dice_mean.value, "iou": iou_mean.value}


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    cfg = Config.from_argv(sys.argv[1:])
    cfg.dump()
    seed_everything(cfg.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    pairs = list_pairs(cfg.root)
    random.shuffle(pairs)
    n_val = int(len(pairs) * cfg.val_fraction)
    train_set = PolypDataset(pairs[n_val:], cfg.size, Augment())
    val_set = PolypDataset(pairs[:n_val], cfg.size)
    train_loader = DataLoader(train_set, batch_size=cfg.batch_size, shuffle=True, drop_last=True)
    val_loader = DataLoader(val_set, batch_size=cfg.batch_size)
    log.info("%d training and %d validation images", len(train_set), len(val_set))

    model = UNet(cfg.base).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="max", patience=8, factor=0.5)

    best = 0.0
    for epoch in range(cfg.epochs):
        train_res = run_epoch(model, train_loader, device, cfg, optimizer)
        val_res = run_epoch(model, val_loader, device, cfg)
        scheduler.step(val_res["dice"])
        log.info(
            "epoch %3d | train loss %.4f dice %.4f | val loss %.4f dice %.4f iou %.4f | lr %.1e",
            epoch, train_res["loss"], train_res["dice"], val_res["loss"], val_res["dice"],
            val_res["iou"], optimizer.param_groups[0]["lr"],
        )
        if val_res["dice"] > best:
            best = val_res["dice"]
            torch.save(model.state_dict(), cfg.out / "best.pt")
    log.info("best dice %.4f", best)


if __name__ == "__main__":
    main()
