"""A stand-in for apex.amp with opt_level O1, in fp32: gradients are scaled and unscaled as apex
does.

What ``scale_loss`` gives keeps the value of the loss, so that the harness, which records losses,
sees the same numbers.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterator
from typing import Any

import torch

SCALE = 1024.0

amp = types.ModuleType("apex.amp")
apex = types.ModuleType("apex")
apex.amp = amp  # type: ignore[attr-defined]
known: list[Any] = []


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, loss: Any) -> Any:
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * SCALE


def initialize(
    models: Any, optimizers: Any = None, enabled: bool = True, opt_level: str = "O1", **_: Any
) -> Any:
    assert opt_level == "O1" and enabled
    known.append(optimizers)
    return models if optimizers is None else (models, optimizers)


def master_params(optimizer: Any) -> Iterator[Any]:
    for group in optimizer.param_groups:
        yield from group["params"]


@contextlib.contextmanager
def scale_loss(loss: Any, optimizers: Any, delay_unscale: bool = False) -> Iterator[Any]:
    assert known, "amp.initialize() was not called"
    params = [
        p
        for o in (optimizers if isinstance(optimizers, list) else [optimizers])
        for p in master_params(o)
    ]
    kept = [None if p.grad is None else p.grad.clone() for p in params]
    for p in params:
        p.grad = None
    yield Scaled.apply(loss.float())
    for p, old in zip(params, kept, strict=True):
        if p.grad is not None:
            p.grad.div_(SCALE)
        if old is not None:
            p.grad = old if p.grad is None else p.grad + old


for function in (initialize, master_params, scale_loss):
    setattr(amp, function.__name__, function)
amp.state_dict = dict  # type: ignore[attr-defined]
sys.modules.update({"apex": apex, "apex.amp": amp})
