"""Seeds: set from outside before the script's first line, and those that the script sets itself
shifted, so that it runs under several.

A shift leaves alone what draws its seed from elsewhere (None). Worker processes that are forked
inherit it; spawned ones do not.
"""

from __future__ import annotations

import functools
import random
from typing import Any

from .core import Probe

PRIME = 7919  # not a difference of seeds that a script would use itself (seed + rank, seed + epoch)


class Seeds:
    def __init__(self, probe: Probe) -> None:
        self.seed, self.offset = probe.settings.seed, probe.settings.shift * PRIME
        self.inside = False
        if self.seed is not None:
            random.seed(self.seed)
        if self.offset:
            self.wrap(random.Random, "seed", 1)
            self.wrap(random, "seed", 0)

    def shifted(self, value: Any) -> Any:
        if (
            isinstance(value, bool)
            or not isinstance(value, int)
            and not hasattr(value, "__index__")
        ):
            return value
        moved = int(value) + self.offset
        return moved % 2**32 if 0 <= int(value) < 2**32 else moved  # NumPy takes 32 bits

    def wrap(self, owner: Any, name: str, place: int, keyword: str = "seed") -> Any:
        original = getattr(owner, name, None)
        if original is None:
            return None

        @functools.wraps(original)
        def seed(*args: Any, **kwargs: Any) -> Any:
            if self.inside:  # torch.manual_seed calls torch.cuda.manual_seed_all
                return original(*args, **kwargs)
            self.inside = True
            try:
                args = tuple(
                    self.shifted(value) if i == place else value for i, value in enumerate(args)
                )
                return original(
                    *args,
                    **{
                        key: self.shifted(value) if key in (keyword, "a") else value
                        for key, value in kwargs.items()
                    },
                )
            finally:
                self.inside = False

        setattr(owner, name, seed)
        return seed

    def numpy(self) -> None:
        import numpy

        if self.seed is not None:
            numpy.random.seed(self.seed % 2**32)
        if self.offset:
            self.wrap(numpy.random, "seed", 0)
            self.wrap(numpy.random, "default_rng", 0)
            numpy.random.RandomState = self.subclass(numpy.random.RandomState, "__init__", "seed")  # type: ignore[misc]

    def torch(self) -> None:
        import torch

        if self.seed is not None:
            torch.manual_seed(self.seed)  # CUDA too: kept until CUDA is initialised
        if self.offset:
            torch.random.manual_seed = torch.manual_seed = self.wrap(torch, "manual_seed", 0)
            for name in ("manual_seed", "manual_seed_all"):
                setattr(torch.cuda, name, self.wrap(torch.cuda.random, name, 0))
            torch.Generator = self.subclass(torch.Generator, "manual_seed")  # type: ignore[misc]

    def subclass(self, base: Any, *methods: str) -> Any:
        made = stand_in(base)
        for name in methods:
            self.wrap(made, name, 1)
        return made


def stand_in(base: Any) -> Any:
    """Classes written in C cannot be patched: a subclass takes the name, and says that objects of
    the old one are its own.
    """

    class Same(type(base)):  # type: ignore[misc]
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, base)

    made: Any = Same(base.__name__, (base,), {"__module__": base.__module__})
    return made
