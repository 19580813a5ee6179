"""Loss curves of both scripts, by seed, cut to equal length and thinned out so that a page can show
them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from autofast.report.verify_words import ORIGINAL, REWRITTEN
from autofast.verify.evidence.record import Detail, Record, Run
from autofast.verify.result import Verification

POINTS = 160

Curve = Sequence[float]


@dataclass(frozen=True)
class Curves:
    """Every curve has a value for each of ``steps``.

    Attributes:
        original, rewritten: one curve for each seed.
        band: lowest and highest of the original's curves; None with one seed.
        differences: rewritten less original, for each seed that both ran with; empty where not a
            bit differs.
        stray: lowest and highest of the original's curves less their mean.
        block: steps that one point is the mean of.
        optimizer: whose losses these are, where there are several.
    """

    steps: Curve
    original: Sequence[Curve]
    rewritten: Sequence[Curve]
    differences: Sequence[Curve]
    band: tuple[Curve, Curve] | None
    stray: tuple[Curve, Curve] | None
    block: int
    seeds: int
    optimizer: str = ""

    @staticmethod
    def mean(some: Sequence[Curve]) -> Curve:
        return numpy.asarray(some, float).mean(0).tolist()  # type: ignore[no-any-return]


def curves(v: Verification) -> Curves | None:
    """None where one of the scripts recorded no losses."""
    original, rewritten = _by_seed(v, ORIGINAL), _by_seed(v, REWRITTEN)
    if not original or not rewritten:
        return None
    number = min(map(len, (*original.values(), *rewritten.values())))
    block = math.ceil(number / POINTS)
    steps = _blocks(range(number), number, block)
    if len(steps) < 2:
        return None
    mine = {seed: _blocks(curve, number, block) for seed, curve in original.items()}
    other = {seed: _blocks(curve, number, block) for seed, curve in rewritten.items()}
    both = [seed for seed in mine if seed in other]
    differences = [other[seed] - mine[seed] for seed in both]
    if not any(numpy.any(line != 0) for line in differences):
        differences = []
    every = numpy.array(list(mine.values()))
    several = len(mine) > 1
    stray = every - every.mean(0)
    first = next(run.record for run in v.runs if run.arm == ORIGINAL and run.ok)
    return Curves(
        steps=(steps + 1).tolist(),
        original=[c.tolist() for c in mine.values()],
        rewritten=[c.tolist() for c in other.values()],
        differences=[c.tolist() for c in differences],
        band=(every.min(0).tolist(), every.max(0).tolist()) if several else None,
        stray=(stray.min(0).tolist(), stray.max(0).tolist()) if several else None,
        block=block,
        seeds=len(mine),
        optimizer=first.optimizers[0] if len(first.optimizers) > 1 else "",
    )


def _by_seed(v: Verification, arm: str) -> Mapping[int, Curve]:
    """The losses of one script: of the runs that were made to be compared where there are some,
    else of the timed ones.
    """
    runs = [
        run
        for run in v.runs
        if run.arm == arm
        and run.records
        and not (run.detail.double or run.detail.perturb or run.detail.common)
    ]
    close = [run for run in runs if run.detail != Detail()] or runs
    found: dict[int, Curve] = {}
    for run in close:
        losses = _losses(run)
        if len(losses) > 1:
            found.setdefault(run.seed, losses)
    return found


def _losses(run: Run) -> Curve:
    """One number for each step of the first optimizer: the mean of its losses, over all ranks."""
    per_rank = [_of_rank(record) for record in run.records]
    number = min(map(len, per_rank))
    return numpy.array([curve[:number] for curve in per_rank]).mean(0).tolist()  # type: ignore[no-any-return]


def _of_rank(record: Record) -> Curve:
    first = record.steps[0].optimizer if record.steps else 0
    by_step = [
        sum(s.losses) / len(s.losses) for s in record.steps if s.optimizer == first and s.losses
    ]
    return by_step or list(record.losses)


def _blocks(curve: Sequence[float], number: int, block: int) -> Any:
    """Means of blocks, as an array; an incomplete one at the end is left out."""
    whole = number // block * block
    return numpy.asarray(curve[:whole], numpy.float64).reshape(-1, block).mean(1)
