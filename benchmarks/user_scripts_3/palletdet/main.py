"""Entry point: ``python main.py config.json``."""
from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import torch
from torch.utils.data import DataLoader

from palletdet.config import Config
from palletdet.dataset import PalletDataset, collate
from palletdet.engine import evaluate, train_one_epoch
from palletdet.model import PalletDetector

logger = logging.getLogger("palletdet")


def build_loaders(cfg: Config) -> tuple[DataLoader, DataLoader]:
    train = PalletDataset(cfg.data, cfg.data.num_train, seed=cfg.seed)
    val = PalletDataset(cfg.data, cfg.data.num_val, seed=cfg.seed + 1)
    train_loader = DataLoader(
        train,
        batch_size=cfg.loader.batch_size,
        shuffle=True,
        num_workers=cfg.loader.num_workers,
        collate_fn=collate,
    )
    val_loader = DataLoader(val, batch_size=cfg.loader.batch_size, collate_fn=collate)
    return train_loader, val_loader


def save_checkpoint(path: Path, model: torch.nn.Module, epoch: int, f1: float) -> None:
    tmp = path.with_suffix(".tmp")
    torch.save({"model": model.state_dict(), "epoch": epoch, "f1": f1}, tmp)
    os.replace(tmp, path)


def main(argv: list[str]) -> int:
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(levelname)s %(name)s: %(message)s")
    cfg = Config.from_json(Path(argv[1]))
    torch.manual_seed(cfg.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cuda":
        # Acceptance tests compare runs bit by bit between station PCs.
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False

    train_loader, val_loader = build_loaders(cfg)
    model = PalletDetector(cfg).to(device)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=cfg.optim.lr, momentum=cfg.optim.momentum, weight_decay=cfg.optim.weight_decay
    )
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, cfg.optim.milestones, gamma=0.1)

    best = -1.0
    for epoch in range(cfg.epochs):
        stats = train_one_epoch(model, optimizer, train_loader, device, epoch, cfg.optim.grad_clip)
        scheduler.step()
        metrics = evaluate(model, val_loader, device)
        logger.info("epoch %d train %s val %s", epoch,
                    {k: round(v, 4) for k, v in stats.items()}, {k: round(v, 4) for k, v in metrics.items()})
        if metrics["f1"] > best:
            best = metrics["f1"]
            save_checkpoint(Path(f"{cfg.run_name}.pt"), model, epoch, best)
    logger.info("best f1 %.4f", best)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv))
