"""What the models draw within their calls, and what they are given in evaluation
(record.Record.drawn, record.Evaluation).

A call evaluates that is made without gradients, or of a model in evaluation mode. A stretch are
such calls of one model between two optimizer steps: a validation is one, whatever its batches are.
Generators that a script makes for itself are not seen.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import checkpoint

from .core import Probe
from .generators import State, of_torch, states, words
from .inputs import look, named
from .loaders import readable

FIRST = 32  # calls of a model in training in which words are counted
MOST_CALLS = 2000  # that evaluate


class Checkpointing:
    """Reentrant checkpointing calls what it wraps without gradients, and again with them in the
    backward: that is training.
    """

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


def add(found: dict[str, int], before: dict[str, State], after: dict[str, State]) -> None:
    """To what each generator drew, what it did between two states."""
    for name in after:
        drawn = words(before[name], after[name]) if name in before else 0
        found[name] = found.get(name, 0) + drawn


class Draws:
    """Attributes:
    trained: by model, words drawn in its first calls in training by each generator, beside masks of
        dropout, the ``samples`` of these, and the number of all ``calls``.
    outside: what was drawn between such calls.
    stretches: by model and optimizer steps made before, [calls, samples, sums of the tensors given,
        calls that drew, times that something was drawn since the call before, sum of what came out,
        and of its squares].
    """

    def __init__(self, probe: Probe, checkpointing: Checkpointing) -> None:
        self.probe = probe
        self.checkpointing = checkpointing
        self.trained: dict[int, dict[str, int]] = {}
        self.stretches: dict[tuple[int, int], list[Any]] = {}
        self.evaluated = 0
        self.open: dict[int, tuple[Any, dict[str, State]]] = {}
        # The random states after the last call that was counted, and what was drawn between such
        # calls.
        self.counted: dict[str, State] = {}
        self.outside: dict[str, int] = {}
        self.sizes: Any = None  # sizes.Sizes
        self.dropped = (
            0  # words of torch's that masks of dropout took within the call that is counted
        )
        # Of the last call that evaluated: optimizer steps made before it, the random states after
        # it.
        self.last: tuple[int, dict[str, State]] = (-1, {})

    def called(
        self, number: int, module: Any, gradients: bool, arguments: Any, keywords: Any
    ) -> None:
        """Just before the call."""
        self.open.pop(id(module), None)  # it ended in an exception
        if self.checkpointing.depth:
            return
        if gradients and module.training:
            drawn = self.trained.setdefault(number, {"calls": 0, "samples": 0})
            drawn["calls"] += 1
            if drawn["calls"] <= FIRST:
                now, self.dropped = states(), 0
                drawn["samples"] += samples([*named(arguments), *named(keywords or {})])
                add(self.outside, self.counted, now)
                self.open[id(module)] = drawn, now
        elif self.evaluated <= MOST_CALLS:
            self.evaluates(number, module, [*named(arguments), *named(keywords or {})])

    def dropping(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """A function of dropout: its masks are compared by themselves (masks.Masks), and may take
        any number of words.
        """
        if not any(isinstance(found, dict) for found, _ in self.open.values()):
            return function(*args, **kwargs)
        before = of_torch()
        result = function(*args, **kwargs)
        self.dropped += words(before, of_torch())
        return result

    def evaluates(self, number: int, module: Any, given: list[tuple[str, Any]]) -> None:
        """From MOST_CALLS on nothing is looked at, and the stretch that is cut there is left
        out.
        """
        steps = self.probe.steps
        self.evaluated += 1
        if self.evaluated > MOST_CALLS:
            self.stretches = {key: one for key, one in self.stretches.items() if key[1] != steps}
            return
        stretch = self.stretches.setdefault((number, steps), [0, 0, {}, 0, 0, 0.0, 0.0])
        stretch[0] += 1
        stretch[1] += samples(given)
        for name, tensor in given:
            value = readable(tensor, self.probe)
            stretch[2][name] = stretch[2].get(name, 0.0) + (value or 0.0)
        now = states()
        stretch[4] += self.last[0] == steps and self.last[1] != now
        self.open[id(module)] = stretch, now

    def returned(self, module: Any, output: Any) -> None:
        found, before = self.open.pop(id(module), (None, {}))
        if found is None:
            return
        after = states()
        if isinstance(found, dict):
            add(found, before, after)
            found["torch"] -= self.dropped
            self.counted = after
        else:
            found[3] += before != after
            for _, tensor in named(output):
                found[5] += readable(tensor, self.probe) or 0.0
                found[6] += look(tensor)[0] * tensor.numel() if tensor.is_floating_point() else 0.0
            self.last = self.probe.steps, after

    def found(self) -> dict[str, Any]:
        return {
            "drawn": {
                **{str(number): drawn for number, drawn in self.trained.items()},
                "outside": self.outside,
                **({"sizes": self.sizes.drawn} if self.sizes is not None else {}),
            },
            "evaluations": [[*key, *stretch] for key, stretch in self.stretches.items()],
        }
