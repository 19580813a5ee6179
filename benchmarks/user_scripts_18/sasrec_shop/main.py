"""Entry point of the next-item training job."""
import argparse
import logging
import random
import sys

import numpy as np
import torch
import yaml

from recsys.data import NextItemDataset, split, synthetic_histories
from recsys.model import SASRec
from recsys.trainer import Trainer


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True)
    parser.add_argument("--epochs", type=int, help="overrides train.epochs")
    parser.add_argument("-v", "--verbose", action="store_true")
    args = parser.parse_args()
    logging.basicConfig(stream=sys.stdout, level=logging.DEBUG if args.verbose else logging.INFO,
                        format="%(levelname)s %(name)s: %(message)s")
    with open(args.config) as f:
        cfg = yaml.safe_load(f)
    if args.epochs:
        cfg["train"]["epochs"] = args.epochs

    random.seed(cfg["seed"])
    np.random.seed(cfg["seed"])
    torch.manual_seed(cfg["seed"])
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    data = cfg["data"]
    histories = synthetic_histories(data["users"], data["items"], data["min_len"], data["mean_len"], cfg["seed"])
    parts = split(histories)
    dataset = NextItemDataset(parts["train"], data["items"], data["max_len"], cfg["seed"])
    model = SASRec(data["items"], data["max_len"], **cfg["model"])
    Trainer(cfg, model, dataset, parts, device).fit()
    return 0


if __name__ == "__main__":
    sys.exit(main())
