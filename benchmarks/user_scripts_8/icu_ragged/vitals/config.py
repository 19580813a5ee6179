from dataclasses import dataclass, field, asdict
from typing import List, Optional


@dataclass
class DataConfig:
    num_stays: int = 360
    num_features: int = 8
    min_hours: int = 6
    max_hours: int = 48
    val_fraction: float = 0.2
    num_workers: int = 0


@dataclass
class ModelConfig:
    hidden: int = 48
    num_layers: int = 2
    dropout: float = 0.1
    static_dims: List[int] = field(default_factory=lambda: [5, 3])


@dataclass
class TrainConfig:
    run_name: str = "icu-deterioration"
    out_dir: Optional[str] = None
    seed: int = 17
    epochs: int = 4
    batch_size: int = 24
    lr: float = 3e-3
    weight_decay: float = 1e-3
    grad_clip: float = 1.0
    pos_weight: float = 3.0
    aux_weight: float = 0.2
    ema_decay: float = 0.98
    patience: int = 3
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)

    def to_dict(self):
        return asdict(self)
