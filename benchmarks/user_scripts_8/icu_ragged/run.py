import argparse
import os
import random
import tempfile

import numpy as np
import torch
from torch.utils.data import DataLoader

from vitals.config import TrainConfig
from vitals.data import BucketBatchSampler, StayDataset, collate_stays, fit_scaler, simulate_stays
from vitals.engine import Trainer
from vitals.model import DeteriorationModel


def seed_everything(seed):
    os.environ["PYTHONHASHSEED"] = str(seed)
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=None)
    ap.add_argument("--num-workers", type=int, default=None)
    args = ap.parse_args()
    cfg = TrainConfig()
    if args.epochs is not None:
        cfg.epochs = args.epochs
    if args.num_workers is not None:
        cfg.data.num_workers = args.num_workers
    seed_everything(cfg.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    stays = simulate_stays(cfg.data, cfg.seed)
    n_val = int(len(stays) * cfg.data.val_fraction)
    train_stays, val_stays = stays[n_val:], stays[:n_val]
    mean, std = fit_scaler(train_stays)
    train_ds, val_ds = StayDataset(train_stays, mean, std), StayDataset(val_stays, mean, std)
    train_loader = DataLoader(train_ds, batch_sampler=BucketBatchSampler(train_ds.lengths(), cfg.batch_size, cfg.seed),
                              collate_fn=collate_stays, num_workers=cfg.data.num_workers)
    val_loader = DataLoader(val_ds, batch_size=cfg.batch_size * 2, shuffle=False, collate_fn=collate_stays,
                            num_workers=cfg.data.num_workers)

    model = DeteriorationModel(cfg.data.num_features, cfg.model)
    print("parameters:", sum(p.numel() for p in model.parameters()))
    out_dir = cfg.out_dir or tempfile.mkdtemp(prefix="icu_")
    trainer = Trainer(cfg, model, train_loader, val_loader, device, out_dir)
    best = trainer.fit()
    print(f"best auroc {best:.5f}")


if __name__ == "__main__":
    main()
