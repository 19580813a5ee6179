"""Averages of the weights that a script keeps (an EMA, a teacher, SWA): by which law they follow
what is trained.

An average moves by a share of its distance to the weights: ``T1 - T0 = rate * (W - T0)``. Whether W
are the weights after the last step or those before it is the order of step and average as the next
forward sees it, and neither depends on what was drawn. Looked at where a backward begins, first of
those after an optimizer step, on random projections; all tensors of the shape of trained ones are
candidates, wherever the script holds them.
"""

from __future__ import annotations

import functools
import gc
import math
from itertools import compress
from operator import itemgetter, mul
from typing import Any

import torch

from .core import Probe
from .gradients import parameters
from .prints import Printer

MOST = 16  # parameters that are looked at, spread over those there are
SIZES = range(16, 1 << 20)  # elements of one
CLOSE = 0.1  # of the way that the average goes may be rounding
FASTEST = 0.5  # what goes faster is a copy
TENSORS = frozenset((torch.Tensor, torch.nn.Parameter))
DENSE = 12  # the first steps are looked at one by one, later ones in pairs

Sketch = Any  # list[float]


def law(before: Sketch, after: Sketch, weights: Sketch) -> tuple[float, float]:
    """The rate, and what it leaves unexplained as a share of the way; infinite where there is no
    such rate.
    """
    way = [x - y for x, y in zip(after, before)]  # noqa: B905
    gap = [x - y for x, y in zip(weights, before)]  # noqa: B905
    size, far = math.hypot(*way), math.hypot(*gap)
    if min(size, far) <= 1e-7 * math.hypot(*before):
        return 0.0, math.inf
    rate = sum(map(mul, way, gap)) / far**2
    if not 0 < rate <= FASTEST:
        return rate, math.inf
    return rate, math.dist(way, [rate * x for x in gap]) / size


class Averages:
    """``found``: record.Followed."""

    def __init__(self, probe: Probe, optimizers: list[Any]) -> None:
        self.probe, self.optimizers = probe, optimizers
        self.found: list[tuple[int, int, bool, float]] = []
        self.printer = Printer()
        self.last = -1
        self.weights: dict[Any, Sketch] = {}
        self.others: dict[Any, dict[int, Sketch]] = {}

    def look(self) -> None:
        """A backward begins."""
        step = self.probe.steps
        if step == self.last:
            return
        # After so many steps also after the one before: two that follow each other.
        if step >= DENSE and step & (step - 1) and (step - 1) & (step - 2):
            return
        followed, self.last = self.last == step - 1, step
        try:
            with torch.no_grad():
                weights, others = self.sketches()
        except Exception as error:
            self.probe.note(f"averages of the weights not recorded: {error}")
            weights, others = {}, {}
        if followed:
            self.follow(step, weights, others)
        self.weights, self.others = weights, others

    def follow(self, step: int, weights: Any, others: Any) -> None:
        moved = {
            shape: [  # in place, or made anew of the one that is nearest
                (earlier.get(k) or min(earlier.values(), key=functools.partial(math.dist, x)), x)
                for k, x in group.items()
            ]
            for shape, group in others.items()
            if (earlier := self.others.get(shape))
        }
        for key, now in weights.items():
            before = self.weights.get(key)
            if before is None:
                continue
            ways = moved.get(key[1], ())
            found = [(*law(*way, w), w is before) for way in ways for w in (now, before)]
            best = min(found, key=itemgetter(1), default=None)
            if best is None or best[1] > CLOSE:
                continue
            other = min(left for _, left, late in found if late is not best[2])
            if other > 3 * best[1]:
                self.found.append((step, key[0], best[2], best[0]))

    def sketches(self) -> tuple[dict[Any, Sketch], dict[Any, dict[int, Sketch]]]:
        held = [p for optimizer in self.optimizers for p in parameters(optimizer)]
        own = {id(value) for p in held for value in (p, p.grad)}
        own.update(
            id(value)
            for optimizer in self.optimizers
            for state in optimizer.state.values()
            if isinstance(state, dict)
            for value in state.values()
        )
        fitting = [
            (i, p) for i, p in enumerate(held) if p.numel() in SIZES and p.is_floating_point()
        ]
        chosen = fitting[:: max(1, -(-len(fitting) // MOST))]
        shapes = {p.shape for _, p in chosen}
        others: dict[Any, dict[int, Sketch]] = {}
        objects = gc.get_objects()
        for one in compress(objects, map(TENSORS.__contains__, map(type, objects))):
            if (
                id(one) not in own
                and one.shape in shapes
                and one.grad_fn is None
                and one.is_floating_point()
            ):
                others.setdefault(one.shape, {})[id(one)] = self.sketch(one)
        return {(i, p.shape): self.sketch(p) for i, p in chosen}, others

    def sketch(self, tensor: Any) -> Sketch:
        return self.printer.sketch(tensor.detach().cpu().double().reshape(-1))
