from dataclasses import dataclass


@dataclass
class Config:
    shards: str = "./shards"
    n_shards: int = 64
    shard_size: int = 262144
    board: int = 19
    planes: int = 12
    blocks: int = 10
    channels: int = 128
    batch_size: int = 1024
    workers: int = 6
    lr: float = 0.08
    momentum: float = 0.9
    weight_decay: float = 1e-4
    value_weight: float = 1.0
    ema_decay: float = 0.999
    total_steps: int = 400000
    warmup_steps: int = 2000
    eval_every: int = 5000
    eval_batches: int = 100
    log_every: int = 100
    amp: bool = True
    out: str = "./runs/go"
    seed: int = 3
