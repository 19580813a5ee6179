"""Common random numbers: all generators start anew with every optimizer step, from its number.

Two scripts of which one has drawn a number more, or another order once, draw the same numbers
again from the next step on. Before the first step they do so where a loader, a training or a
model begins. What a script seeds or restores by itself afterwards acts as it always does: an order
that is the same in every epoch stays one. Generators that it makes for itself from a seed
(``numpy.random.default_rng``) are followed if they are there before the first step.
"""

from __future__ import annotations

import functools
import random
import sys
import zlib
from typing import Any

import torch
from torch.utils.data import DataLoader

from .core import Probe
from .training import opaque

MOST = 100  # generators of a script's own that are followed


class Common:
    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.depth = 0
        self.begun: set[str] = set()
        self.own: list[Any] = []
        if "numpy" in sys.modules:
            self.numpy()
        self.wrap(torch.nn.Module, "register_parameter")
        self.wrap(torch.nn.Module, "train")
        self.wrap(DataLoader, "__iter__")
        torch.nn.modules.module.register_module_forward_pre_hook(opaque(self.called()))

    def numpy(self) -> None:
        from numpy import random as module

        original = module.default_rng

        @functools.wraps(original)
        def make(*args: Any, **kwargs: Any) -> Any:
            made = original(*args, **kwargs)
            if not self.probe.steps and len(self.own) < MOST:
                self.own.append(made)
            return made

        module.default_rng = make

    def wrap(self, owner: Any, name: str) -> None:
        """``model.train()``, the iterator of a loader, and the first parameter of all: its weights
        are drawn next.
        """
        original = getattr(owner, name)

        @functools.wraps(original)
        def begins(this: Any, *args: Any, **kwargs: Any) -> Any:
            evaluates = name == "train" and not (kwargs.get("mode", True) and all(args))
            known = name == "register_parameter" and name in self.begun
            if not (self.probe.steps or self.depth or evaluates or known):
                self.begun.add(name)
                self.again(name)
            self.depth += 1
            try:
                return original(this, *args, **kwargs)
            finally:
                self.depth -= 1

        setattr(owner, name, opaque(begins))

    def called(self) -> Any:
        """Of the first call with gradients."""

        def before(module: Any, arguments: Any) -> None:
            if not self.probe.steps and torch.is_grad_enabled() and "call" not in self.begun:
                self.begun.add("call")
                self.again("call")

        return before

    def again(self, name: str) -> None:
        if not self.probe.ours:
            return
        probe = self.probe
        text = f"{name} {probe.steps} {probe.rank} {probe.settings.shift}"
        start = zlib.crc32(text.encode()) >> 1
        random.seed(start)
        torch.manual_seed(start)
        numpy: Any = sys.modules.get("numpy")
        if numpy is not None:
            numpy.random.seed(start)
        for place, own in enumerate(self.own):
            own.bit_generator.state = type(own.bit_generator)(start + place + 1).state

    def step_ended(self) -> None:
        self.again("step")
