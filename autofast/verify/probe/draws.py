"""What the models draw within their calls, and what they are given in evaluation
(record.Record.drawn, record.Evaluation).

A call evaluates that is made without gradients, or of a model in evaluation mode. A stretch are
such calls of one model between two optimizer steps: a validation is one, whatever its batches are.
Of generators that a script makes for itself see own.py."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.utils import checkpoint

from .core import Data, Probe
from .inputs import named
from .loaders import readable
from .surroundings import random_digest

FIRST = 32  # calls of a model in training in which it is asked whether it draws
MOST_CALLS = 2000  # that evaluate
ENTRIES = 64  # of a parameter, which tell whether it moved


class Checkpointing:
    """Reentrant checkpointing calls what it wraps without gradients, and again with them in the
    backward: that is training."""

    def __init__(self) -> None:
        self.depth = 0
        function: Any = getattr(checkpoint, "CheckpointFunction", None)
        if function is None:
            return
        original = function.forward

        @functools.wraps(original)
        def forward(*args: Any, **kwargs: Any) -> Any:
            self.depth += 1
            try:
                return original(*args, **kwargs)
            finally:
                self.depth -= 1

        function.forward = staticmethod(forward)

    def idle(self) -> bool:
        """Nothing is trained by what is computed now."""
        return not torch.is_grad_enabled() and not self.depth


def samples(given: list[tuple[str, Any]]) -> int:
    return next((int(tensor.shape[0]) for _, tensor in given if tensor.dim()), 1)


class Draws:
    """Attributes:
    trained: by model, how often it was called in training (``calls``), and in how many of the first
        calls something was drawn (``drew``).
    stretches: by model and optimizer steps made before, [calls, samples, sums of the tensors given,
        sum of what came out, steps made when its weights were first seen as they are]."""

    def __init__(self, probe: Probe, checkpointing: Checkpointing) -> None:
        self.probe = probe
        self.checkpointing = checkpointing
        self.trained: dict[int, dict[str, int]] = {}
        self.stretches: dict[tuple[int, int], list[Any]] = {}
        self.weights: dict[int, tuple[float, int]] = {}  # a checksum, steps made by then
        self.evaluated = 0
        self.open: dict[int, tuple[Any, str]] = {}  # the random states before a call in training
        self.sizes: Any = None  # sizes.Sizes

    def called(
        self, number: int, module: Any, gradients: bool, arguments: Any, keywords: Any
    ) -> None:
        """Just before the call."""
        self.open.pop(id(module), None)  # it ended in an exception
        if self.checkpointing.depth:
            return
        if self.probe.common is not None:
            self.probe.common.turn()
        if gradients and module.training:
            drawn = self.trained.setdefault(number, {"calls": 0, "drew": 0})
            drawn["calls"] += 1
            if drawn["calls"] <= FIRST:
                self.open[id(module)] = drawn, random_digest()
        elif self.evaluated <= MOST_CALLS:
            self.evaluates(number, module, [*named(arguments), *named(keywords or {})])

    def evaluates(self, number: int, module: Any, given: list[tuple[str, Any]]) -> None:
        """From MOST_CALLS on nothing is looked at, and the stretch that is cut there is left
        out."""
        steps = self.probe.steps
        self.evaluated += 1
        if self.evaluated > MOST_CALLS:
            self.stretches = {key: one for key, one in self.stretches.items() if key[1] != steps}
            return
        if (number, steps) not in self.stretches:
            self.stretches[number, steps] = [0, 0, {}, 0.0, self.since(number, module)]
        stretch = self.stretches[number, steps]
        stretch[0] += 1
        stretch[1] += samples(given)
        for name, tensor in given:
            value = readable(tensor, self.probe)
            stretch[2][name] = stretch[2].get(name, 0.0) + (value or 0.0)
        self.open[id(module)] = stretch, ""

    def since(self, number: int, module: Any) -> int:
        """From a few entries of each parameter: steps of another model do not move it."""
        with torch.no_grad():
            parts = [p.detach().reshape(-1)[:ENTRIES].double() for p in module.parameters()]
            value = readable(torch.cat([p.to(parts[0].device) for p in parts]), self.probe) if parts else 0.0  # fmt: skip
        if value is None or value != self.weights.get(number, (None,))[0]:
            self.weights[number] = (value or 0.0, self.probe.steps)
        return self.weights[number][1]

    def returned(self, module: Any, output: Any) -> None:
        found, before = self.open.pop(id(module), (None, ""))
        if found is None:
            return
        if isinstance(found, dict):
            found["drew"] += before != random_digest()
        else:
            found[3] += sum(readable(tensor, self.probe) or 0.0 for _, tensor in named(output))

    def found(self) -> Data:
        kinds = ("drawn", "whole", "idle") if self.sizes is not None else ()
        counted = {name.replace("drawn", "sizes"): getattr(self.sizes, name) for name in kinds}
        return {
            "drawn": {**{str(number): drawn for number, drawn in self.trained.items()}, **counted},
            "evaluations": [[*key, *stretch] for key, stretch in self.stretches.items()],
        }
