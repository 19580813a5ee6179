"""Stand-in for lightning.pytorch: modules, a Trainer on the CPU, automatic optimization."""

from __future__ import annotations

import contextlib
import inspect
import random
from types import SimpleNamespace

import numpy as np
import torch
from torch import nn

PRECISIONS = (
    "64-true",
    "32-true",
    "16-mixed",
    "bf16-mixed",
    "16-true",
    "bf16-true",
    "64",
    "32",
    "16",
    "bf16",
    64,
    32,
    16,
)
MIXED = {
    "bf16-mixed": torch.bfloat16,
    "bf16": torch.bfloat16,
    "16-mixed": torch.float16,
    "16": torch.float16,
}


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    return seed


class _Hooks:
    """What a module and a data module share."""

    trainer = None
    hparams = SimpleNamespace()

    def prepare_data(self): ...

    def setup(self, stage): ...

    def train_dataloader(self):
        return None

    def val_dataloader(self):
        return None

    def save_hyperparameters(self, ignore=()):
        frame = inspect.currentframe().f_back
        names = list(inspect.signature(type(self).__init__).parameters)[1:]
        self.hparams = SimpleNamespace(**{n: frame.f_locals[n] for n in names if n not in ignore})


class LightningDataModule(_Hooks): ...


class LightningModule(_Hooks, nn.Module):
    automatic_optimization = True

    def __init__(self):
        super().__init__()
        self.logged = {}

    @property
    def device(self):
        return torch.device("cpu")

    def log(self, name, value, prog_bar=False, on_step=None, on_epoch=None):
        self.logged[name] = float(torch.as_tensor(value).detach())

    def optimizers(self):
        found = self.trainer.optimizers
        return found if len(found) > 1 else found[0]

    def manual_backward(self, loss):
        loss.backward()

    def toggle_optimizer(self, optimizer): ...

    def untoggle_optimizer(self, optimizer): ...

    def validation_step(self, batch, batch_idx): ...

    def on_train_epoch_end(self): ...


class Trainer:
    def __init__(
        self, *, accelerator="auto", strategy="auto", devices="auto", num_nodes=1, precision=None, logger=None, callbacks=None, fast_dev_run=False,
        max_epochs=None, min_epochs=None, max_steps=-1, min_steps=None, max_time=None, limit_train_batches=None, limit_val_batches=None,
        limit_test_batches=None, limit_predict_batches=None, overfit_batches=0.0, val_check_interval=None, check_val_every_n_epoch=1,
        num_sanity_val_steps=None, log_every_n_steps=None, enable_checkpointing=None, enable_progress_bar=None, enable_model_summary=None,
        accumulate_grad_batches=1, gradient_clip_val=None, gradient_clip_algorithm=None, deterministic=None, benchmark=None, inference_mode=True,
        use_distributed_sampler=True, profiler=None, detect_anomaly=False, barebones=False, plugins=None, sync_batchnorm=False,
        reload_dataloaders_every_n_epochs=0, default_root_dir=None, enable_autolog_hparams=True, model_registry=None,
    ):  # fmt: skip
        if precision is not None and precision not in PRECISIONS:
            raise ValueError(
                f"Precision {precision!r} is invalid. Allowed precision values: {PRECISIONS}"
            )
        if accelerator in ("gpu", "cuda") and not torch.cuda.is_available():
            raise RuntimeError("No supported gpu backend found!")
        if benchmark is not None:
            torch.backends.cudnn.benchmark = benchmark
        self.precision = str(precision if precision is not None else "32-true")
        self.max_epochs, self.clip, self.global_step, self.current_epoch = (
            max_epochs or 1000,
            gradient_clip_val,
            0,
            0,
        )
        self.optimizers = []

    def _forward(self):
        dtype = MIXED.get(self.precision)
        return (
            torch.autocast("cpu", dtype=dtype, cache_enabled=False)
            if dtype is not None
            else contextlib.nullcontext()
        )

    def _made(self, model):
        made = model.configure_optimizers()
        if isinstance(made, dict):
            return [made["optimizer"]], [made["lr_scheduler"]] if "lr_scheduler" in made else []
        if isinstance(made, tuple) and made and isinstance(made[0], list):
            return made[0], made[1]
        return (list(made), []) if isinstance(made, (list, tuple)) else ([made], [])

    def fit(self, model, train_dataloaders=None, val_dataloaders=None, datamodule=None):
        data = datamodule or model
        data.prepare_data()
        data.setup("fit")
        model.trainer = self
        self.optimizers, schedulers = self._made(model)
        training = train_dataloaders if train_dataloaders is not None else data.train_dataloader()
        checking = val_dataloaders if val_dataloaders is not None else data.val_dataloader()
        for epoch in range(self.max_epochs):
            self.current_epoch = epoch
            model.train()
            for index, batch in enumerate(training):
                self._step(model, batch, index)
            for scheduler in schedulers:
                scheduler.step()
            if checking is not None:
                model.eval()
                with torch.inference_mode():
                    for index, batch in enumerate(checking):
                        with self._forward():
                            model.validation_step(batch, index)
            model.on_train_epoch_end()

    def _step(self, model, batch, index):
        with self._forward():
            loss = (
                model.training_step(batch, index)
                if "batch_idx" in inspect.signature(model.training_step).parameters
                else model.training_step(batch)
            )
        if model.automatic_optimization:
            (optimizer,) = self.optimizers
            optimizer.zero_grad()
            loss.backward()
            if self.clip:
                if self.precision in MIXED and getattr(
                    optimizer, "_step_supports_amp_scaling", False
                ):
                    raise RuntimeError(
                        f"The current optimizer, {type(optimizer).__qualname__}, does not allow for gradient clipping"
                    )
                nn.utils.clip_grad_norm_(model.parameters(), self.clip)
            optimizer.step()
        self.global_step += 1
