"""Common random numbers: all generators start anew with every optimizer step, from its number.

Two scripts of which one has drawn a number more, or another order once, draw the same numbers
again from the next step on. Before the first step they do so where a loader, a training or a
model begins. What a script seeds or restores by itself afterwards acts as it always does: an order
that is the same in every epoch stays one. Generators that it makes for itself from a seed
(``numpy.random.default_rng``) are followed if they are there before the first step.

An item of a map-style data set is made from random numbers that follow from the pass and its index,
wherever it is made: by the main process, which draws on afterwards as if it had made none, or by
any worker. How workers are seeded is not seen then.
"""

from __future__ import annotations

import functools
import random
import sys
import zlib
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import DataLoader, dataloader, get_worker_info
from torch.utils.data._utils.fetch import _MapDatasetFetcher

from .core import Probe
from .training import opaque

MOST = 100  # generators of a script's own that are followed


class Items:
    """A data set that says which item is made next."""

    def __init__(self, dataset: Any, begins: Callable[[Any], Any]) -> None:
        self.dataset, self.begins = dataset, begins

    def __getitem__(self, index: Any) -> Any:
        self.begins(index)
        return self.dataset[index]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.dataset, name)


class Common:
    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.depth = 0
        self.base = 0
        self.begun: set[str] = set()
        self.own: list[Any] = []
        if "numpy" in sys.modules:
            self.numpy()
        self.wrap(torch.nn.Module, "register_parameter")
        self.wrap(torch.nn.Module, "train")
        self.wrap(DataLoader, "__iter__")
        self.wrap_fetch()
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

    def wrap_fetch(self) -> None:
        single: Any = dataloader._SingleProcessDataLoaderIter
        fetch, next_data = _MapDatasetFetcher.fetch, single._next_data

        @functools.wraps(next_data)
        def in_main(iterator: Any) -> Any:
            self.base = iterator._base_seed
            return next_data(iterator)

        @functools.wraps(fetch)
        def made(this: Any, indices: Any) -> Any:
            worker, numpy = get_worker_info(), sys.modules.get("numpy")
            base = self.base if worker is None else worker.seed - worker.id
            dataset, own = this.dataset, [one.bit_generator.state for one in self.own]
            before = random.getstate(), torch.get_rng_state(), numpy and numpy.random.get_state()
            this.dataset = Items(dataset, lambda index: self.set(f"item {base} {index}"))
            self.set(f"batch {base} {indices}")
            try:
                return fetch(this, indices)  # type: ignore[no-untyped-call]
            finally:
                this.dataset = dataset
                random.setstate(before[0])
                torch.set_rng_state(before[1])
                if numpy:
                    numpy.random.set_state(before[2])
                for one, state in zip(self.own, own):  # noqa: B905
                    one.bit_generator.state = state

        single._next_data, _MapDatasetFetcher.fetch = in_main, made  # type: ignore[method-assign]

    def called(self) -> Any:
        """Of the first call with gradients."""

        def before(module: Any, arguments: Any) -> None:
            if not self.probe.steps and torch.is_grad_enabled() and "call" not in self.begun:
                self.begun.add("call")
                self.again("call")

        return before

    def again(self, name: str) -> None:
        if self.probe.ours:
            torch.manual_seed(self.set(f"{name} {self.probe.steps}"))  # of every device

    def set(self, text: str) -> int:
        settings = self.probe.settings
        start = zlib.crc32(f"{text} {self.probe.rank} {settings.shift}".encode()) >> 1
        random.seed(start)
        torch.default_generator.manual_seed(start)
        numpy: Any = sys.modules.get("numpy")
        if numpy is not None:
            numpy.random.seed(start)
        for place, own in enumerate(self.own):
            own.bit_generator.state = type(own.bit_generator)(start + place + 1).state
        return start

    def step_ended(self) -> None:
        self.again("step")
