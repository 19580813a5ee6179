"""python main.py config.yaml [section.key=value ...]"""
import logging
import os
import sys

import numpy as np
import torch

from recs import conf
from recs.data import EventData, load_events
from recs.model import TwoTower
from recs.trainer import Console, EmaCallback, GradNormMonitor, MetricWriter, Trainer


def main(argv):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s | %(message)s")
    cfg = conf.load(argv[0] if argv else "config.yaml", argv[1:])
    torch.manual_seed(cfg["seed"])
    np.random.seed(cfg["seed"])
    ev = load_events(cfg["data"], cfg["seed"])
    data = EventData(ev, cfg["data"])
    m = cfg["model"]
    model = TwoTower(cfg["data"]["users"], cfg["data"]["items"], m["dim"], m["hidden"], m["temperature"], data.log_pop)
    out = cfg["trainer"]["ckpt_dir"]
    os.makedirs(out, exist_ok=True)
    trainer = Trainer(cfg, model, data, [GradNormMonitor(), EmaCallback(cfg["trainer"]["ema"]),
                                         MetricWriter(os.path.join(out, "metrics.jsonl")), Console()])
    best = trainer.fit()
    logging.getLogger("recs").info("best recall@%d %.4f", cfg["trainer"]["eval_k"], best)


if __name__ == "__main__":
    main(sys.argv[1:])
