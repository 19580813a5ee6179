"""Which rows are taken of data in memory, and of data sets by their loaders, while it trains
(record.Record.rows): their order says what no value tells that has noise over it.

Of each length of the data the rows are one series, in the order in which they are taken. Tensors
that are indexed alike one after the other (inputs and labels, words and those that follow them)
count once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .core import Data, Probe
from .instead import instead_of, registered
from .training import compiling

MOST = 300_000  # rows in all
LEAST = 50  # rows in the data, and taken again
NEAR = 50  # a pass is cut into so many parts, of which neighbours stay in one
WHOLE = (torch.int64, torch.int32, torch.int16)
ARGUMENTS = ("input", "dim", "index")
OWNERS = (
    ("__getitem__", torch.Tensor),
    ("index_select", torch.Tensor),
    ("index_select", torch),
)


class Rows:
    """``series``: by the length of the data."""

    def __init__(self, probe: Probe, idle: Callable[[], bool]) -> None:
        self.probe, self.no_training = probe, idle
        self.series: dict[int, list[int]] = {}
        self.room = MOST
        self.latest: dict[int, Any] = {}

        for name, owner in OWNERS:
            instead_of(name, owner)(self.taken)
        registered("index_select", torch)

    def taken(self, original: Any, *given: Any, **named: Any) -> Any:
        """``data[index]``, or ``index_select(data, dim, index)`` with whatever names."""
        whole = [*given, *(named[name] for name in ARGUMENTS if name in named)]
        if len(whole) == 2 or (len(whole) == 3 and whole[1] == 0):
            index = whole[-1]
            self.indexed(whole[0], index[0] if type(index) is tuple and index else index)
        return original(*given, **named)

    def indexed(self, data: Any, index: Any) -> None:
        """By an index of whole numbers, of several in a row the first one."""
        if type(index) is not torch.Tensor or type(data) is not torch.Tensor or compiling():
            return
        if index.dtype not in WHOLE or not index.dim() or data.requires_grad:
            return
        if index.is_cuda and torch.cuda.is_current_stream_capturing():
            return
        try:
            index = index.detach().reshape(len(index), -1)[:, 0].cpu()
            last, self.latest[len(data)] = self.latest.get(len(data)), index
            again = last is not None and _moved(last, index)
        except Exception:  # one inside of torch.func.vmap, none at all
            return
        if not again:
            self.took(data, index.tolist())

    def took(self, data: Any, rows: Sequence[Any]) -> None:
        if self.room <= 0 or self.no_training():
            return
        try:
            size = len(data)
        except Exception:  # a data set whose sampler alone knows it
            return
        if rows and size >= LEAST and all(type(row) is int for row in rows):
            self.series.setdefault(size, []).extend(rows)
            self.room -= len(rows)

    def found(self) -> Data:
        return {"rows": {str(size): looks(size, rows) for size, rows in self.series.items()}}


def _moved(one: Any, two: Any) -> bool:
    far = two - one if len(one) == len(two) else None
    return far is not None and bool((far == far[0]).all()) and abs(int(far[0])) <= 1


def looks(size: int, rows: Sequence[int]) -> list[float]:
    """How many were taken; how far from a whole pass it is until one is taken again, as a share of
    it, and how often the row behind it comes again near to it; the mean place in the data."""
    rows = [row % size for row in rows]
    after: dict[int, int] = {}
    waits, stays, behind = [], [], 0
    for place in range(len(rows) - 1, -1, -1):
        again = after.get(rows[place], 0)
        after[rows[place]] = place
        if again:
            waits.append(abs(again - place - size) / size)
        if again and behind:
            stays.append(abs(again - behind) * NEAR <= max(size, 2 * NEAR))
        behind = again
    means = [sum(some) / len(some) if len(some) >= LEAST else -1.0 for some in (waits, stays)]
    return [len(rows), *means, sum(rows) / len(rows) / size]
