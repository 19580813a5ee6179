"""Typed configuration of the pallet detector."""
from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import List


@dataclass(frozen=True)
class DataConfig:
    image_size: int
    num_train: int
    num_val: int
    max_boxes: int
    num_classes: int


@dataclass(frozen=True)
class LoaderConfig:
    batch_size: int
    num_workers: int = 0


@dataclass(frozen=True)
class ModelConfig:
    width: int
    stride: int
    anchor_sizes: List[int] = field(default_factory=lambda: [16, 32])


@dataclass(frozen=True)
class OptimConfig:
    lr: float
    momentum: float
    weight_decay: float
    milestones: List[int]
    grad_clip: float


@dataclass(frozen=True)
class Config:
    run_name: str
    seed: int
    data: DataConfig
    loader: LoaderConfig
    model: ModelConfig
    optim: OptimConfig
    epochs: int
    score_threshold: float
    nms_threshold: float

    @classmethod
    def from_json(cls, path: Path) -> "Config":
        raw = json.loads(path.read_text())
        raw["data"] = DataConfig(**raw["data"])
        raw["loader"] = LoaderConfig(**raw["loader"])
        raw["model"] = ModelConfig(**raw["model"])
        raw["optim"] = OptimConfig(**raw["optim"])
        return cls(**raw)
