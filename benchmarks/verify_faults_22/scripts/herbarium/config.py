import argparse
from dataclasses import dataclass


@dataclass
class Config:
    epochs: int = 13
    batch_size: int = 15
    accumulate: int = 3
    lr: float = 3e-2
    weight_decay: float = 0.02
    max_norm: float = 0.5
    dim: int = 32
    words: int = 250
    tags: int = 12
    word_dropout: float = 0.25
    ema: float = 0.98
    patience: int = 3
    seed: int = 9


def get_config(argv=None):
    parser = argparse.ArgumentParser()
    for name, value in vars(Config()).items():
        parser.add_argument("--" + name.replace("_", "-"), type=type(value), default=value)
    return Config(**vars(parser.parse_args(argv)))
