"""Generators that a script makes for itself before the first step (``default_rng``,
``RandomState``, ``random.Random``): what they draw is counted as what all others draw (sizes.py).

With common random numbers it follows from their seed, and that of ``torch.Generator`` too: before
the first step from what is drawn and how often it was before, as with the generators that all
share; later each starts anew with every step. Of Python's only those are looked at that get a seed:
others make names of files."""

from __future__ import annotations

import functools
import random
import sys
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from .core import Probe
from .seeds import stand_in
from .sizes import CHOICES

MOST = 100  # that are followed
KEPT = ("seed", "get_state", "set_state", "getstate", "setstate", "bit_generator", "spawn")


class Kind(NamedTuple):
    """How a generator is seeded, how its state is read, and how that is set."""

    seed: Callable[[Any, int], Any]
    get: Callable[[Any], Any]
    put: Callable[[Any, Any], Any]


NUMPY = Kind(
    lambda one, number: setattr(one.bit_generator, "state", type(one.bit_generator)(number).state),
    lambda one: one.bit_generator.state,
    lambda one, state: setattr(one.bit_generator, "state", state),
)


class Own:
    def __init__(self, probe: Probe, sizes: Any) -> None:
        self.probe, self.sizes = probe, sizes  # sizes.Sizes
        self.common: Any = None  # common.Common
        self.all: list[Any] = []
        self.busy = False
        python = random.Random
        self.python = Kind(python.seed, python.getstate, python.setstate)
        random.Random = self.followed(python, self.python)  # type: ignore[misc]
        if "numpy" in sys.modules:
            self.numpy(sys.modules["numpy"].random)

    def numpy(self, module: Any) -> None:
        state, original = module.RandomState, module.default_rng
        kind = Kind(state.seed, state.get_state, state.set_state)
        module.RandomState = self.followed(state, kind)
        generator = self.followed(module.Generator, NUMPY)

        @functools.wraps(original)
        def make(*args: Any, **kwargs: Any) -> Any:
            made = original(*args, **kwargs)
            if type(made) is not generator:
                made = generator(made.bit_generator)
                self.seeded(made, NUMPY, args, kwargs)
            return made

        module.default_rng = make

    def torch(self, common: Any) -> None:
        """Numbers are common from now on."""
        self.common, base = common, torch.Generator
        kind = Kind(torch._C.Generator.manual_seed, base.get_state, base.set_state)
        torch.Generator = self.followed(base, kind, "manual_seed")  # type: ignore[misc]

    def followed(self, base: Any, kind: Kind, seed: str = "seed") -> Any:
        """A class in the place of ``base``."""
        made = stand_in(base)
        begin, look = base.__init__, base.__getattribute__

        def start(this: Any, *args: Any, **kwargs: Any) -> None:
            begin(this, *args, **kwargs)
            self.seeded(this, kind, args, kwargs)

        def again(this: Any, *args: Any, **kwargs: Any) -> Any:
            found = getattr(base, seed)(this, *args, **kwargs)
            self.seeded(this, kind, args, kwargs)
            return found

        def attribute(this: Any, name: str) -> Any:
            found = look(this, name)
            if self.busy or name[0] == "_" or name in KEPT or not hasattr(this, "_autofast"):
                return found
            return self.watched(this, name, found) if callable(found) else found

        made.__init__ = start
        if hasattr(base, seed):
            setattr(made, seed, again)
        if seed == "seed":  # functions of torch draw, no methods of its generators
            made.__getattribute__ = attribute
        return made

    def seeded(self, one: Any, kind: Kind, args: Any, kwargs: Any) -> None:
        """By None, or by an object: what tells is the state that it has."""
        known = hasattr(one, "_autofast")
        unseeded = kind is self.python and not any(x is not None for x in (*args, *kwargs.values()))
        if self.probe.steps or unseeded or not known and len(self.all) >= MOST:
            return
        text = f"{args} {kwargs}"
        text = str(zlib.crc32(repr(kind.get(one)).encode())) if " at 0x" in text else text
        one._autofast = kind, f"own {type(one).__name__} {text}", dict[str, int]()
        if not known:
            self.all.append(one)

    def watched(self, one: Any, name: str, original: Any) -> Any:
        @functools.wraps(original)
        def draw(*args: Any, **kwargs: Any) -> Any:
            self.drawing(one, name, (*args, *kwargs.values()))
            self.busy = True  # what it draws by others of its methods
            try:
                result = original(*args, **kwargs)
            finally:
                self.busy = False
            kind = "choices" if name in CHOICES.split() else "numbers"
            inclusive = isinstance(one, random.Random) and name == "randint"
            self.sizes.counted(kind, name, result, args, kwargs, inclusive)
            return result

        return draw

    def drawing(self, one: Any, name: str, args: Any) -> None:
        if self.common is not None and hasattr(one, "_autofast"):
            self.common.turn()
            kind, key, counts = one._autofast
            text = self.common.before(key, name, args, counts)
            if text is not None:
                kind.seed(one, self.common.number(text))

    def set(self, text: str) -> None:
        for one in self.all:
            kind, key, _ = one._autofast
            kind.seed(one, self.common.number(f"{text} {key}"))

    def begun(self) -> int:
        """A digest of what was drawn before the first call."""
        some = (
            (key[len(one._autofast[1]) :], n)
            for one in self.all
            for key, n in one._autofast[2].items()
        )
        return zlib.crc32(f"{sorted(some)}".encode())

    def states(self) -> list[Any]:
        return [one._autofast[0].get(one) for one in self.all]

    def restore(self, states: list[Any]) -> None:
        for one, state in zip(self.all, states):  # noqa: B905
            one._autofast[0].put(one, state)
