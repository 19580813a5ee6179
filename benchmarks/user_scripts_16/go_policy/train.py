#!/usr/bin/env python
"""Entry point: python train.py [--config configs/b10c128.yaml] [key=value ...]"""
import argparse

import yaml

from gopolicy.config import Config
from gopolicy.trainer import Trainer


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--config", default=None)
    ap.add_argument("overrides", nargs="*")
    args = ap.parse_args()
    values = {}
    if args.config:
        with open(args.config) as f:
            values.update(yaml.safe_load(f))
    for kv in args.overrides:
        k, v = kv.split("=", 1)
        values[k] = yaml.safe_load(v)
    Trainer(Config(**values)).fit()


if __name__ == "__main__":
    main()
