import argparse
from dataclasses import dataclass, field, fields
from typing import Optional


@dataclass
class TrainingArguments:
    output_dir: Optional[str] = field(default=None, metadata={"help": "checkpoints go here (a temp dir if unset)"})
    num_train_epochs: int = 2
    per_device_train_batch_size: int = 16
    per_device_eval_batch_size: int = 32
    gradient_accumulation_steps: int = 2
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    warmup_ratio: float = 0.1
    max_grad_norm: float = 1.0
    label_smoothing_factor: float = 0.05
    logging_steps: int = 5
    eval_steps: int = 10
    save_steps: int = 10
    seed: int = 42
    bf16: bool = False
    skip_nonfinite: bool = True
    dataloader_num_workers: int = 0


def parse_dataclass(cls):
    p = argparse.ArgumentParser()
    for f in fields(cls):
        typ = {"int": int, "float": float, "bool": lambda s: s.lower() in ("1", "true")}.get(
            getattr(f.type, "__name__", ""), str)
        p.add_argument("--" + f.name, type=typ, default=f.default)
    return cls(**vars(p.parse_args()))
