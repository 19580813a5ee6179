import argparse
import random
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader

from detector import AerialDetector
from engine import Checkpoint, Journal, Trainer, WeightAverage
from tiles import Tiles, draw_tiles


def seed_everything(seed, deterministic):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    if deterministic:
        torch.backends.cudnn.deterministic = True
        torch.use_deterministic_algorithms(True, warn_only=True)


def main():
    ap = argparse.ArgumentParser()
    defaults = dict(data="tiles", out="logs/v1", n_train=4000, n_val=400, size=512, classes=5, width=64, batch_size=16,
                    epochs=100, lr=5e-4, warmup=500, thresh=0.3, average=0.999, check_every=2, accumulate=1, workers=6,
                    threads=0, seed=42)
    for name, value in defaults.items():
        ap.add_argument("--" + name.replace("_", "-"), type=type(value), default=value)
    ap.add_argument("--blocks", type=int, nargs="+", default=[3, 4, 6, 3])
    ap.add_argument("--precision", type=int, choices=(16, 32), default=16)
    ap.add_argument("--deterministic", action="store_true")
    ap.add_argument("--resume")
    a = ap.parse_args()

    seed_everything(a.seed, a.deterministic)
    if a.threads:
        torch.set_num_threads(a.threads)
    out = Path(a.out)
    out.mkdir(parents=True, exist_ok=True)
    draw_tiles(f"{a.data}/train", a.n_train, a.size, a.classes, seed=1)
    draw_tiles(f"{a.data}/val", a.n_val, a.size, a.classes, seed=100001)
    train = DataLoader(Tiles(f"{a.data}/train", a.classes, True), batch_size=a.batch_size, shuffle=True,
                       num_workers=a.workers, pin_memory=True, persistent_workers=a.workers > 0, drop_last=True)
    val = DataLoader(Tiles(f"{a.data}/val", a.classes, False), batch_size=a.batch_size)
    model = AerialDetector(a.classes, a.width, tuple(a.blocks), a.lr, a.warmup, thresh=a.thresh)
    trainer = Trainer(a.epochs, precision=a.precision, clip=35.0, accumulate=a.accumulate, check_every=a.check_every,
                      callbacks=[WeightAverage(a.average), Journal(out / "journal.jsonl"), Checkpoint(out, "f1")])
    trainer.fit(model, train, val, ckpt=a.resume)


if __name__ == "__main__":
    main()
