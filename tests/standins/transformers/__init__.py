"""Stand-in for transformers: TrainingArguments, the parser of dataclasses and the Trainer. See
tests/standins/README.md.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import typing
from dataclasses import dataclass
from types import SimpleNamespace

import torch
from torch.utils.data import DataLoader

from transformers.utils import is_torch_bf16_gpu_available, is_torch_tf32_available

OPTIMIZERS = ("adamw_torch", "adamw_torch_fused", "sgd", "adafactor", "adamw_bnb_8bit")


@dataclass
class TrainingArguments:
    output_dir: str | None = None
    num_train_epochs: float = 3.0
    max_steps: int = -1
    per_device_train_batch_size: int = 8
    per_device_eval_batch_size: int = 8
    learning_rate: float = 5e-5
    max_grad_norm: float = 1.0
    lr_scheduler_type: str = "linear"
    optim: str = "adamw_torch"
    seed: int = 42
    bf16: bool = False
    fp16: bool = False
    tf32: bool | None = None
    use_cpu: bool = False
    torch_compile: bool = False
    gradient_checkpointing: bool = False
    dataloader_num_workers: int = 0
    dataloader_persistent_workers: bool = False
    dataloader_prefetch_factor: int | None = None
    dataloader_pin_memory: bool = True
    dataloader_drop_last: bool = False
    logging_steps: float = 500
    eval_strategy: str = "no"
    save_strategy: str = "steps"
    report_to: str = "none"
    remove_unused_columns: bool = True
    deepspeed: str | None = None

    def __post_init__(self):
        if self.bf16 and not self.use_cpu and not is_torch_bf16_gpu_available():
            raise ValueError(
                "Your setup doesn't support bf16/gpu. You need to assign use_cpu if you want to train the model on CPU."
            )
        if self.fp16 and self.bf16:
            raise ValueError("At most one of fp16 and bf16 can be True, but not both")
        if self.tf32 and not is_torch_tf32_available():
            raise ValueError("--tf32 requires Ampere or a newer GPU arch, cuda>=11 and torch>=1.7")
        if self.optim not in OPTIMIZERS:
            raise ValueError(f"{self.optim} is not a valid OptimizerNames")
        if self.dataloader_num_workers == 0 and self.dataloader_prefetch_factor is not None:
            raise ValueError(
                "--dataloader_prefetch_factor can only be set when data is loaded in a different process"
            )


class HfArgumentParser:
    def __init__(self, dataclass_types):
        self.types = (
            [dataclass_types] if isinstance(dataclass_types, type) else list(dataclass_types)
        )

    def parse_args_into_dataclasses(self):
        words, given = sys.argv[1:], {}
        while words:
            name = words.pop(0).removeprefix("--")
            given[name] = words.pop(0) if words and not words[0].startswith("--") else "True"
        made = []
        for cls in self.types:
            hints = typing.get_type_hints(cls)
            mine = {
                f.name: _value(given.pop(f.name), hints[f.name])
                for f in dataclasses.fields(cls)
                if f.name in given
            }
            made.append(cls(**mine))
        if given:
            raise ValueError(
                f"Some specified arguments are not used by the HfArgumentParser: {sorted(given)}"
            )
        return tuple(made)


def _value(text, hint):
    if hint in (bool, bool | None):
        return text.lower() in ("true", "1", "yes", "y", "t")
    return int(text) if hint is int else float(text) if hint is float else text


class Trainer:
    def __init__(
        self, model=None, args=None, data_collator=None, train_dataset=None, eval_dataset=None, processing_class=None, model_init=None,
        compute_loss_func=None, compute_metrics=None, callbacks=None, optimizers=(None, None), optimizer_cls_and_kwargs=None,
        preprocess_logits_for_metrics=None,
    ):  # fmt: skip
        self.model, self.args = (
            model if model is not None else model_init(),
            args or TrainingArguments("tmp_trainer"),
        )
        self.collate, self.train_dataset, self.given = data_collator, train_dataset, optimizers
        self.state = SimpleNamespace(global_step=0)
        torch.manual_seed(self.args.seed)

    def get_train_dataloader(self):
        args, generator = self.args, torch.Generator().manual_seed(self.args.seed)
        return DataLoader(
            self.train_dataset, batch_size=args.per_device_train_batch_size, shuffle=True, generator=generator, collate_fn=self.collate,
            num_workers=args.dataloader_num_workers, persistent_workers=args.dataloader_persistent_workers, drop_last=args.dataloader_drop_last,
            prefetch_factor=args.dataloader_prefetch_factor,
        )  # fmt: skip

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(**inputs)
        return (outputs["loss"], outputs) if return_outputs else outputs["loss"]

    def train(self):
        args = self.args
        loader = self.get_train_dataloader()
        optimizer = self.given[0] or torch.optim.AdamW(
            self.model.parameters(),
            lr=args.learning_rate,
            weight_decay=0.0,
            **({"fused": True} if args.optim == "adamw_torch_fused" else {}),
        )
        half = (
            torch.autocast("cpu", dtype=torch.bfloat16) if args.bf16 else contextlib.nullcontext()
        )
        self.model.train()
        for _ in range(int(args.num_train_epochs)):
            for inputs in loader:
                with half:
                    loss = self.compute_loss(self.model, dict(inputs))
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), args.max_grad_norm)
                optimizer.step()
                optimizer.zero_grad()
                self.state.global_step += 1
                if self.state.global_step == args.max_steps:
                    return


__all__ = ["HfArgumentParser", "Trainer", "TrainingArguments"]
