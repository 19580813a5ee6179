import csv
import logging
import random

import numpy as np
import torch

from .config import parse
from .data import loaders
from .engine import evaluate, train_one_epoch
from .model import Net

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("grove")


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def build(cfg, steps):
    model = Net(cfg.classes)
    optimizer = torch.optim.SGD(model.parameters(), lr=cfg.lr, momentum=cfg.momentum, weight_decay=cfg.weight_decay)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=cfg.lr, total_steps=cfg.epochs * steps, cycle_momentum=False)
    return model, optimizer, scheduler


def fit(cfg, until, resume=None):
    train, val = loaders(cfg)
    model, optimizer, scheduler = build(cfg, len(train))
    start, best = 0, 0.0
    if resume:
        state = torch.load(resume, weights_only=False)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])
        start, best = state["epoch"] + 1, state["best"]
        log.info("resumed after epoch %d", state["epoch"])
    with open("metrics.csv", "a" if resume else "w", newline="") as f:
        table = csv.writer(f)
        for epoch in range(start, until):
            train_loss = train_one_epoch(model, train, optimizer, scheduler, cfg)
            val_loss, accuracy = evaluate(model, val)
            lr = scheduler.get_last_lr()[0]
            log.info("epoch %d train %.4f val %.4f acc %.4f lr %.5f", epoch, train_loss, val_loss, accuracy, lr)
            print(f"epoch {epoch}: train_loss={train_loss:.4f} val_loss={val_loss:.4f} val_acc={accuracy:.4f}")
            table.writerow([epoch, f"{train_loss:.5f}", f"{val_loss:.5f}", f"{accuracy:.4f}", f"{lr:.6f}"])
            if accuracy > best:
                best = accuracy
                torch.save(model.state_dict(), "best.pt")
            torch.save(
                {
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "scheduler": scheduler.state_dict(),
                    "epoch": epoch,
                    "best": best,
                },
                cfg.checkpoint,
            )
    return best


def main():
    cfg = parse()
    set_seed(cfg.seed)
    fit(cfg, cfg.half_way)
    best = fit(cfg, cfg.epochs, resume=cfg.checkpoint)
    print(f"best accuracy {best:.4f}")
