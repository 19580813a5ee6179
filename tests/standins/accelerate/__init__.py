"""Stand-in for Accelerate on one CPU: see tests/standins/README.md."""

from __future__ import annotations

import contextlib
import functools
import os
from dataclasses import dataclass

import torch
from torch.utils.data import DataLoader


@dataclass
class DataLoaderConfiguration:
    split_batches: bool = False
    dispatch_batches: bool | None = None
    even_batches: bool = True
    use_seedable_sampler: bool = False
    data_seed: int | None = None
    non_blocking: bool = False
    use_stateful_dataloader: bool = False


class _Loader:
    """A prepared loader: its batches are on the device."""

    def __init__(self, loader, device, non_blocking):
        self.loader, self.device, self.non_blocking = loader, device, non_blocking

    def __iter__(self):
        for batch in self.loader:
            yield _moved(batch, self.device, self.non_blocking)

    def __len__(self):
        return len(self.loader)

    @property
    def dataset(self):
        return self.loader.dataset


def _moved(batch, device, non_blocking):
    if isinstance(batch, dict):
        return {name: _moved(value, device, non_blocking) for name, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        return type(batch)(_moved(value, device, non_blocking) for value in batch)
    return batch.to(device, non_blocking=non_blocking) if isinstance(batch, torch.Tensor) else batch


class Accelerator:
    def __init__(
        self, device_placement=True, split_batches=False, mixed_precision=None, gradient_accumulation_steps=1, cpu=False, dataloader_config=None,
        deepspeed_plugin=None, fsdp_plugin=None, torch_tp_plugin=None, megatron_lm_plugin=None, rng_types=None, log_with=None, project_dir=None,
        project_config=None, gradient_accumulation_plugin=None, step_scheduler_with_optimizer=True, kwargs_handlers=None, dynamo_backend=None,
        dynamo_plugin=None, deepspeed_plugins=None, parallelism_config=None,
    ):  # fmt: skip
        self.mixed_precision = mixed_precision or os.environ.get("ACCELERATE_MIXED_PRECISION", "no")
        if self.mixed_precision not in ("no", "fp16", "bf16", "fp8"):
            raise ValueError(f"Unknown mixed_precision mode: {mixed_precision}")
        if (
            self.mixed_precision == "bf16"
            and torch.cuda.is_available()
            and not torch.cuda.is_bf16_supported()
        ):
            raise ValueError(
                "bf16 mixed precision requires PyTorch >= 1.10 and a supported device."
            )
        self.device, self.config = (
            torch.device("cpu"),
            dataloader_config or DataLoaderConfiguration(),
        )
        self.every, self.count, self.sync_gradients, self.is_main_process = (
            gradient_accumulation_steps,
            0,
            True,
            True,
        )

    def prepare(self, *given):
        made = tuple(self._prepared(one) for one in given)
        return made if len(made) > 1 else made[0]

    def _prepared(self, one):
        if isinstance(one, DataLoader):
            return _Loader(one, self.device, self.config.non_blocking)
        if isinstance(one, torch.nn.Module) and self.mixed_precision == "bf16":
            inside = one.forward

            @functools.wraps(inside)
            def forward(*args, **kwargs):
                with self.autocast():
                    made = inside(*args, **kwargs)
                return made.float() if isinstance(made, torch.Tensor) else made

            one.forward = forward
        return _Optimizer(one, self) if isinstance(one, torch.optim.Optimizer) else one

    def autocast(self):
        return torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.mixed_precision == "bf16")

    @contextlib.contextmanager
    def accumulate(self, *models):
        self.count += 1
        self.sync_gradients = self.count % self.every == 0
        yield

    def backward(self, loss):
        (loss / self.every).backward()

    def clip_grad_norm_(self, parameters, max_norm):
        return torch.nn.utils.clip_grad_norm_(parameters, max_norm)

    def gather_for_metrics(self, found):
        return found

    def unwrap_model(self, model):
        model.__dict__.pop("forward", None)
        return model

    def wait_for_everyone(self): ...

    def print(self, *words):
        print(*words)


class _Optimizer(torch.optim.Optimizer):
    """Steps where gradients are complete."""

    def __init__(self, optimizer, accelerator):
        self.optimizer, self.accelerator = optimizer, accelerator

    def __getattr__(self, name):
        return getattr(self.__dict__["optimizer"], name)

    def step(self):
        if self.accelerator.sync_gradients:
            self.optimizer.step()

    def zero_grad(self, set_to_none=True):
        if self.accelerator.sync_gradients:
            self.optimizer.zero_grad(set_to_none)


__all__ = ["Accelerator", "DataLoaderConfiguration"]
