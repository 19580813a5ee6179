from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True)
class DataConfig:
    path: str
    rows_train: int
    rows_valid: int
    n_dense: int
    cardinalities: list[int]
    seed: int


@dataclass(frozen=True)
class ModelConfig:
    embedding_dim: int
    bottom_mlp: list[int]
    top_mlp: list[int]
    dropout: float


@dataclass(frozen=True)
class TrainConfig:
    batch_size: int
    eval_batch_size: int
    epochs: int
    lr: float
    num_workers: int
    log_every: int
    eval_every: int
    checkpoint_every: int
    checkpoint_dir: str
    seed: int


@dataclass(frozen=True)
class Config:
    data: DataConfig
    model: ModelConfig
    train: TrainConfig

    @staticmethod
    def load(path: str) -> "Config":
        with open(path) as f:
            raw = json.load(f)
        return Config(DataConfig(**raw["data"]), ModelConfig(**raw["model"]), TrainConfig(**raw["train"]))
