"""How many random numbers torch is asked for at a time, in the first steps: by what kind of
function, within models and beside them (record.Record.drawn, "sizes").

One draw for all samples of a batch, or one draw less, hardly shows in how much is drawn in all.
What a backward computes again and what compiled code draws is not counted.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from .core import Probe
from .masks import _task
from .training import opaque

STEPS = range(1, 25)  # optimizer steps made before; what is drawn sooner may be a model's weights
NUMBERS = "rand randn rand_like randn_like normal bernoulli"
CHOICES = "randint randint_like randperm multinomial"
IN_PLACE = "uniform_ normal_ bernoulli_ exponential_ log_normal_ geometric_ cauchy_ bernoulli"


class Sizes:
    """``drawn``: by kind and size how often that much was drawn, and under "before" how many
    numbers were drawn sooner.
    """

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.drawn: dict[str, int] = {"before": 0}
        for owner, kind, names in (
            (torch, "numbers", NUMBERS),
            (torch, "choices", CHOICES),
            (torch.Tensor, "numbers", IN_PLACE),
            (torch.Tensor, "choices", "random_ multinomial"),
        ):
            for name in names.split():
                self.wrap(owner, name, kind)

    def wrap(self, owner: Any, name: str, kind: str) -> None:
        original = getattr(owner, name)
        compiling = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)

        @functools.wraps(original)
        def watched(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            if not compiling() and _task() == -1 and isinstance(result, torch.Tensor):
                self.counted(kind, result.numel())
            return result

        if owner is torch:  # so that torch.jit.script still takes it for the operation that it is
            from torch.jit import _builtins

            _builtins._register_builtin(watched, f"aten::{name}")
        setattr(owner, name, opaque(watched))

    def counted(self, kind: str, size: int) -> None:
        if self.probe.steps in STEPS:
            key = f"{kind} {size}"
            self.drawn[key] = self.drawn.get(key, 0) + 1
        elif self.probe.steps < STEPS.start and kind == "numbers":
            self.drawn["before"] += size
