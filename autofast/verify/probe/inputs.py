"""What the models are given in training, call by call, and how their modules are set up
(record.Record.inputs, modules).

Data that a script makes or indexes in memory pass no DataLoader: here they are seen whatever they
come from.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.modules import module as modules

from . import surroundings
from .core import Data, Probe
from .laws import Laws
from .loaders import readable, weights
from .training import compiling
from .unaided import unwrapped
from .walk import walk

MOST_CALLS = 4000
MOST_LEAVES = 8
FEW = 8  # series of values in which is looked how evenly they lie, and the fewest of each
LONGEST = 1024


def named(entry: Any) -> list[tuple[str, Any]]:
    """Tensors with the way to them: ``0``, ``1.0``, ``mask``."""
    leaves = ((".".join(path), unwrapped(leaf)) for path, leaf in walk(entry))
    return [(path, leaf) for path, leaf in leaves if isinstance(leaf, torch.Tensor)]


def ordered(tensor: torch.Tensor) -> float:
    """A checksum in which the order of the samples counts; 0 for what cannot be read."""
    try:
        with torch.no_grad():
            rows = tensor.detach().cpu().double()
            rows = rows.reshape(len(rows), -1)
            rows = rows @ weights(rows.shape[1])
            return float((rows * weights(len(rows))).sum())
    except Exception:  # no rows, a meta tensor, one inside of torch.func.vmap
        return 0.0


def look(tensor: torch.Tensor) -> tuple[float, float]:
    """Mean of squares and share of zeros: a scale, or a mask, that is one for all samples of a
    batch shows in how they scatter.
    """
    with torch.no_grad():
        values = tensor.detach().double()
        if not values.numel():
            return 0.0, 0.0
        return float((values * values).mean()), float((values == 0).double().mean())


def evenness(tensor: torch.Tensor) -> tuple[float, float]:
    """How evenly the values lie down the samples, and across the last dimension: the mean ratio of
    neighbouring gaps, the smaller to the larger, which is 0.39 for independent draws from any
    density, more for strata and 1 for a grid. Of eight series each; 0 for short ones.
    """
    if not tensor.numel():
        return 0.0, 0.0
    rows = tensor.detach().reshape(len(tensor) if tensor.dim() else 1, -1)[:LONGEST].double()
    last = rows[:FEW] if tensor.dim() < 3 else tensor.detach().flatten(0, -2)[:FEW].double()
    return _evenly(rows[:, :FEW].T), _evenly(last[:, :LONGEST])


def _evenly(series: torch.Tensor) -> float:
    if series.shape[-1] < FEW:
        return 0.0
    gaps = series.sort(dim=1).values.diff(dim=1)
    one, two = gaps[:, :-1], gaps[:, 1:]
    high = torch.maximum(one, two)
    ratios = (torch.minimum(one, two) / high)[high > 0]
    return float(ratios.mean()) if len(ratios) else 0.0


def packed(arguments: Any) -> bool:
    """Sequences of several lengths are given, each read to its own end and not to that of the
    padding.
    """
    sizes = getattr(arguments[0], "batch_sizes", None) if arguments else None
    return sizes is not None and len(sizes) > 1 and bool(sizes[0] != sizes[-1])


class Inputs:
    """``calls``: number of the model, samples, a checksum for each tensor (loaders.value: whatever
    the order in the batch), optimizer steps made before, and in the first step a digest of the
    random states and a checksum for each tensor of the order in the batch; what ``look`` and
    ``evenness`` say of floats, and what ``Laws`` does. ``dropped``: names of the dropout modules
    that were called.
    """

    def __init__(self, probe: Probe, loaders: Any = None) -> None:
        self.probe = probe
        self.loaders = loaders
        self.draws: Any = None  # draws.Draws
        self.calls: list[tuple[Any, ...]] = []
        self.laws = Laws()
        self.modules: dict[str, str] = {}
        self.dropouts: dict[int, str] = {}
        self.both_ways: dict[int, str] = {}  # recurrent modules that begin at either end
        self.dropped: dict[str, None] = {}
        self.latest: Any = None  # the first tensor that a model was given, of as many samples
        modules.register_module_forward_hook(self.hook())

    def found(self) -> Data:
        dropouts = list(self.dropped)
        return {"inputs": self.calls, "modules": self.modules, "dropouts": dropouts}

    def hook(self) -> Any:

        def after(module: Any, arguments: Any, output: Any) -> None:
            if compiling():  # traced as it stands: it must fold to nothing there
                return
            if self.draws is not None:
                self.draws.returned(module, output)
            name = self.both_ways.get(id(module))
            if name is not None and packed(arguments):
                del self.both_ways[id(module)]
                self.modules[name] = self.modules[name].removesuffix(")") + ", packed=True)"
            name = self.dropouts.get(id(module))
            if name is not None and module.training:
                self.dropped[name] = None

        return after

    def called(self, number: int, arguments: Any, keywords: Any) -> None:
        if len(self.calls) >= MOST_CALLS:
            self.latest = None
            return
        found = [*named(arguments), *named(keywords or {})][:MOST_LEAVES]
        self.latest = next((t.detach() for _, t in found if t.dim()), None)
        read = [(name, readable(tensor, self.probe)) for name, tensor in found]
        sums = {name: value for name, value in read if value is not None}
        floats = [(n, t) for n, t in found if n in sums and t.is_floating_point()]
        with torch.no_grad():
            seen = {n: (*look(t), *evenness(t)) for n, t in floats}
        if self.loaders is not None:
            tensors = [tensor for name, tensor in found if name in sums]
            self.loaders.given(tensors, [sums[name] for name, _ in found if name in sums])
        size = next((int(t.shape[0]) for _, t in found if t.dim()), 1)
        steps = self.probe.steps
        random = surroundings.random_digest() if not steps else ""
        order = {name: ordered(tensor) for name, tensor in found} if not steps else {}
        laws = self.laws.called(number, [(name, t) for name, t in found if name in sums])
        self.calls.append((number, size, sums, steps, random, order, seen, laws))

    def known(self, number: int, model: Any) -> None:
        """Settings of the modules in words: ``Dropout(p=0.2)``."""
        for name, module in model.named_modules():
            try:
                text = f"{type(module).__name__}({module.extra_repr()})"
            except Exception:
                continue
            if "Dropout" in type(module).__name__ and getattr(module, "p", None) != 0:
                self.dropouts[id(module)] = f"{number}/{name}"
            if module.extra_repr():
                self.modules[f"{number}/{name}"] = text[:200]
                if getattr(module, "bidirectional", False):
                    self.both_ways[id(module)] = f"{number}/{name}"
