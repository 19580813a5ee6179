import argparse
from dataclasses import dataclass, fields


@dataclass
class Config:
    classes: int = 5
    train_size: int = 400
    val_size: int = 130
    batch_size: int = 32
    val_batch: int = 25
    workers: int = 2
    epochs: int = 6
    half_way: int = 3
    lr: float = 0.06
    momentum: float = 0.9
    weight_decay: float = 5e-4
    smoothing: float = 0.1
    mixup: float = 0.4
    seed: int = 7
    checkpoint: str = "last.pt"


def parse():
    parser = argparse.ArgumentParser()
    for field in fields(Config):
        parser.add_argument(f"--{field.name}", type=type(field.default), default=field.default)
    return Config(**vars(parser.parse_args()))
