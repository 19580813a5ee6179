import argparse
from dataclasses import dataclass, fields


@dataclass
class TrainingArguments:
    output_dir: str = "out"
    max_steps: int = 60
    per_device_train_batch_size: int = 4
    gradient_accumulation_steps: int = 4
    learning_rate: float = 3e-3
    warmup_ratio: float = 0.1
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    logging_steps: int = 10
    eval_steps: int = 30
    save_steps: int = 60
    bf16: bool = False
    lora_r: int = 4
    lora_alpha: int = 8
    seed: int = 42

    @classmethod
    def parse(cls):
        p = argparse.ArgumentParser()
        for f in fields(cls):
            if f.type is bool:
                p.add_argument(f"--{f.name}", action="store_true")
            else:
                p.add_argument(f"--{f.name}", type=f.type, default=f.default)
        return cls(**vars(p.parse_args()))
