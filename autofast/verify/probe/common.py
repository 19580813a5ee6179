"""Common random numbers: all generators start anew with every optimizer step, from its number.

Two scripts of which one has drawn a number more, or another order once, draw the same numbers
again from the next step on. What is drawn before the first step follows from the seed that the
script has set, from what is drawn, and how often it was before: a number more changes nothing else.
What a script seeds or restores by itself afterwards acts as it always does: an order that is the
same in every epoch stays one. Generators that it makes for itself from a seed
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
from torch.utils.data import dataloader, get_worker_info
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
    def __init__(self, probe: Probe, sizes: Any) -> None:
        self.probe, self.drawn = probe, sizes.drawn  # sizes.Sizes
        sizes.drawing = self.drawing
        self.base, self.making, self.called_once = 0, False, False
        self.own: list[Any] = []
        self.seed: dict[str, Any] = {}
        self.seeds: dict[str, str] = {}
        self.counts: dict[str, int] = {}
        self.wrap_seed(random, "seed", "random")
        self.wrap_seed(torch, "manual_seed", "torch")
        if "numpy" in sys.modules:
            self.numpy()
        self.wrap_fetch()
        torch.nn.modules.module.register_module_forward_pre_hook(opaque(self.called()))

    def numpy(self) -> None:
        from numpy import random as module

        self.wrap_seed(module, "seed", "numpy")
        original, common = module.default_rng, self

        class Followed(module.Generator):
            """A generator of the script's own."""

            seeded = ""

            def __getattribute__(self, name: str) -> Any:
                found = super().__getattribute__(name)
                if common.probe.steps or name.startswith("_") or not callable(found):
                    return found

                def draw(*args: Any, **kwargs: Any) -> Any:
                    text = common.before(f"own {self.seeded}", name, (*args, *kwargs.values()))
                    if text is not None:
                        self.bit_generator.state = common.state_of(self, text)
                    return found(*args, **kwargs)

                return draw

        @functools.wraps(original)
        def make(*args: Any, **kwargs: Any) -> Any:
            made = original(*args, **kwargs)
            if self.probe.steps or len(self.own) >= MOST:
                return made
            made = Followed(made.bit_generator)
            made.seeded = f"{len(self.own)} {args} {kwargs}"
            self.own.append(made)
            return made

        module.default_rng = make

    def number(self, text: str) -> int:
        settings = self.probe.settings
        return zlib.crc32(f"{text} {self.probe.rank} {settings.shift}".encode()) >> 1

    def state_of(self, own: Any, text: str) -> Any:
        return type(own.bit_generator)(self.number(text)).state

    def wrap_seed(self, owner: Any, name: str, family: str) -> None:
        """What is drawn before the first step hangs on the seed that the script sets."""
        original = self.seed[family] = getattr(owner, name)

        @functools.wraps(original)
        def seeded(*args: Any, **kwargs: Any) -> Any:
            self.seeds[family] = f"{args} {kwargs}"
            self.counts = {k: n for k, n in self.counts.items() if not k.startswith(family)}
            return original(*args, **kwargs)

        setattr(owner, name, opaque(seeded))

    def before(self, family: str, name: str, args: Any) -> str | None:
        """Of a draw before the first step: what it follows from."""
        if self.probe.steps or not self.probe.ours or self.making:
            return None
        what = [getattr(x, "shape", x) for x in args]
        key = f"{family} {name} {[x for x in what if isinstance(x, (int, tuple))]}"
        self.counts[key] = self.counts.get(key, 0) + 1
        return f"{self.seeds.get(family)} {key} {self.counts[key]}"

    def drawing(self, owner: Any, name: str, args: Any, kwargs: Any) -> None:
        family = owner.__name__.partition(".")[0]
        family = family if family in self.seed else "torch"
        text = self.before(family, name, args) if kwargs.get("generator") is None else None
        if text is not None:
            self.seed[family](self.number(text))

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
            order, self.making = self.drawn.get("sequence", 0), True
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
                self.drawn["sequence"], self.making = order, False

        single._next_data, _MapDatasetFetcher.fetch = in_main, made  # type: ignore[method-assign]

    def called(self) -> Any:
        """Of the first call with gradients."""

        def before(module: Any, arguments: Any) -> None:
            if not self.probe.steps and torch.is_grad_enabled() and not self.called_once:
                self.called_once = True
                self.again("call")

        return before

    def again(self, name: str) -> None:
        if self.probe.ours:
            self.set(f"{name} {self.probe.steps}")
            if not self.probe.steps:
                self.drawn["sequence"] = 0

    def set(self, text: str) -> None:
        for seed in self.seed.values():
            seed(self.number(text))
        for place, own in enumerate(self.own):
            own.bit_generator.state = self.state_of(own, f"{text} {place}")

    def step_ended(self) -> None:
        self.again("step")
