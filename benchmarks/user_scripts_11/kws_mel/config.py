import argparse
from dataclasses import dataclass, field, fields
from typing import List


@dataclass
class Config:
    # data
    n_train: int = 20000
    n_valid: int = 2500
    n_classes: int = 12
    sample_rate: int = 16000
    clip_seconds: float = 1.0
    # features
    n_fft: int = 512
    win_ms: float = 25.0
    hop_ms: float = 10.0
    n_mels: int = 40
    # augmentation
    shift_ms: float = 100.0
    noise_prob: float = 0.8
    noise_gain: float = 0.2
    spec_masks: int = 2
    mixup_alpha: float = 0.2
    # model
    channels: int = 64
    n_blocks: int = 6
    dropout: float = 0.1
    # training
    batch_size: int = 128
    epochs: int = 30
    lr: float = 2e-3
    weight_decay: float = 1e-3
    smoothing: float = 0.1
    warmup_epochs: int = 2
    workers: int = 4
    seed: int = 17
    out: str = 'runs'
    label_names: List[str] = field(default_factory=list)


def parse_config() -> Config:
    """every simple field of the dataclass becomes an option"""
    parser = argparse.ArgumentParser()
    for f in fields(Config):
        if f.type in (int, float, str):
            parser.add_argument('--' + f.name, type=f.type, default=f.default)
    cfg = Config(**vars(parser.parse_args()))
    cfg.label_names = ['w%02d' % i for i in range(cfg.n_classes)]
    return cfg
