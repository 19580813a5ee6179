"""How many random numbers Python, NumPy and torch are asked for at a time in the whole run: by what
kind of function, within models and beside them (record.Record.drawn); of whole numbers also from
how many ("below 17").

One draw for all samples of a batch, or one draw less, hardly shows in how much is drawn in all.
With gradients and without it is counted apart: noise of an evaluation is none of a training.
What a backward computes again and what compiled code draws is not counted; masks of dropout are
counted by themselves (masks.py), generators that a script makes for itself in own.py."""

from __future__ import annotations

import random
import sys
import zlib
from collections.abc import Callable
from typing import Any

import torch

from .core import Probe
from .instead import instead_of, registered
from .training import compiling

FIRST = 25  # steps over which the order of the calls is kept
TORCH = "rand randn rand_like randn_like normal bernoulli randint randint_like"
IN_PLACE = "uniform_ normal_ bernoulli_ exponential_ log_normal_ geometric_ cauchy_ bernoulli random_"  # fmt: skip
NUMPY = "rand randn random random_sample uniform normal standard_normal beta randint"
PYTHON = "random uniform gauss normalvariate betavariate randint randrange choices"
# An order or some of many: how many numbers that takes depends on how it is done.
CHOICES = "randperm multinomial permutation permuted shuffle choice sample"
# Seeds of loaders, and weights of a model that is made, are no noise.
UNUSED = ("torch.utils.data", "torch.nn.init")
PUT = (".sizes", ".instead", ".own")  # what stands in the place of a function that draws
OWN = (f"{__package__}.state", f"{__package__}.prints")
# Of numbers: one kind stands for another only if more of it are drawn than before.
WHOLE = ("randint", "randint_like", "random_", "randrange", "integers")
NORMAL = ("randn", "norm", "gauss")
# The number of the backward that runs now, -1 outside of any.
task = getattr(torch._C, "_current_graph_task_id", lambda: -1)


class Sizes:
    """``drawn``: of the first steps, under "sequence" a digest of all calls in their order but for
    those of a generator that is given (a sampler's), and under "among" one of what these drew from;
    "unseen" are batches of which workers do not tell what they drew (carried.py), "within" draws
    of the first calls of models (``open``).
    ``whole``: by kind and size how often that much was drawn with gradients, and ``idle``: without.
    ``evaluated``: with common random numbers a digest of
    the calls without gradients since the last step, which are then none of the sequence."""

    def __init__(self, probe: Probe, idle: Callable[[], bool]) -> None:
        self.probe, self.no_training = probe, idle
        self.evaluated = 0
        self.drawn = {"sequence": 0, "among": 0, "unseen": 0, "within": 0}
        self.open: Any = ()  # draws.Draws.open: models that are called now
        self.whole: dict[str, int] = {}
        self.idle: dict[str, int] = {}
        self.drawing: Any = None  # common.Common's, asked before each draw
        numpy: Any = sys.modules.get("numpy")
        owners = [(torch, TORCH), (torch.Tensor, IN_PLACE), (random, PYTHON)]
        for owner, names in [*owners, (numpy.random, NUMPY)] if numpy else owners:
            for kind, some in (("numbers", names), ("choices", CHOICES)):
                for name in some.split():
                    if hasattr(owner, name):
                        self.wrap(owner, name, kind)

    def wrap(self, owner: Any, name: str, kind: str) -> None:
        @instead_of(name, owner, hidden=True)
        def watched(original: Any, *args: Any, **kwargs: Any) -> Any:
            counts = not compiling() and task() == -1 and not _by_probe(sys._getframe(2))
            if counts and self.drawing is not None:
                self.drawing(owner, name, args, kwargs)
            result = original(*args, **kwargs)
            if counts:
                inclusive = owner is random and name == "randint"
                self.counted(kind, name, result, args, kwargs, inclusive)
            return result

        # Workers that are spawned find it by these names.
        made = getattr(owner, name)
        made.__module__, made.__qualname__ = owner.__name__, name
        if owner is torch:
            registered(name, owner)

    def counted(
        self, kind: str, name: str, result: Any, args: Any, keywords: Any, inclusive: bool = False
    ) -> None:
        shared = keywords.get("generator") is None
        size = _size(args[0] if name == "shuffle" and args else result)
        kind = "wholes" if name in WHOLE else "coins" if "bern" in name else kind
        kind = "normals" if any(word in name for word in NORMAL) else kind
        self.over_all(f"{kind} {size}")
        self.drawn["within"] += bool(self.open)
        if among := kind == "wholes" and _width(args, keywords, inclusive):
            self.over_all(f"below {among}", size)
        if self.drawing is not None and self.idles():
            self.evaluated = zlib.crc32(f"{name} {size}".encode(), self.evaluated)
        elif self.probe.steps < FIRST and shared:
            for key, text in (("sequence", f"{name} {size}"), ("among", f"{_among(args)}")):
                self.drawn[key] = zlib.crc32(text.encode(), self.drawn[key])

    def over_all(self, key: str, times: int = 1) -> None:
        frame: Any = sys._getframe(2)
        while (name := frame.f_globals["__name__"]).startswith(__package__) and name.endswith(PUT):
            frame = frame.f_back
        if name.startswith((__package__, *UNUSED)) and not key.startswith("choices"):
            return
        store = self.idle if self.idles() else self.whole
        store[key] = store.get(key, 0) + times

    def idles(self) -> bool:
        return self.probe.steps > 0 and self.no_training()


def _by_probe(frame: Any) -> bool:
    """Gradients and sketches of the probe's own making: no draws of the script."""
    return frame.f_globals.get("__name__") in OWN


def _width(args: Any, keywords: Any, inclusive: bool) -> int:
    """How many whole numbers are drawn from; 0: not known."""
    args = args[1:] if args and isinstance(args[0], torch.Tensor) else args
    known = {"low": 0, "high": None, **dict(zip(("low", "high"), args)), **keywords}  # noqa: B905
    low, high = (known.get(other, known[name]) for name, other in (("low", "from"), ("high", "to")))
    low, high = (low, high) if type(high) is int else (0, low)
    one_more = inclusive or keywords.get("endpoint") is True
    return max(0, high - low + one_more) if type(low) is type(high) is int else 0


def _size(result: Any) -> int:
    if isinstance(result, torch.Tensor):
        return result.numel()
    size = getattr(result, "size", len(result) if isinstance(result, list) else 1)
    return size if isinstance(size, int) else 1


def _among(args: Any) -> list[Any]:
    """Whole numbers, and how many there are of what is no number."""
    return [
        x if isinstance(x, int) else tuple(x.shape) if hasattr(x, "shape") else len(x)
        for x in args[:2]
        if isinstance(x, int) or hasattr(x, "__len__")
    ]
