"""Whether what the models are given is drawn by the original's law, where it is drawn otherwise.

Of every sample the probe keeps some numbers that say what it is like (mean, extremes, how far
neighbours differ, which way it leans; of whole numbers how often each comes), and of a few calls
together how these lie (mean, spread, quantiles). Each is compared as a mean of runs: its chance is
the larger of what seeds and what the calls of a run show, so that neither draws that a whole run
shares nor a lucky agreement of four seeds makes a difference.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from autofast.verify.estimates import fmean, median, spread
from autofast.verify.evidence.gathered import Evidence
from autofast.verify.evidence.record import Numbers, Run

WITHIN = 6.0  # standard errors, of the calls of a run
# Of seeds, where those tell more apart than the calls of a run do, and where they do not: in a
# simulation of 3,000,000 pairs of four equal runs 3e-5 and 6e-6 of all comparisons were beyond.
SEEDS, CALLS = 12.0, 8.0
MANY = 8  # runs of each, from which on CALLS does for both
LEAST = 0.01  # of the size of a number
FEW = 3  # blocks of a run
PAIRS = 4  # of runs, which is what all tests over seeds need
AS_ONE = 1.5  # times the variance that calls make

WHOLE = (
    "share of zeros", "share of equal neighbours", *(f"share of {k} modulo 16" for k in range(16)),
    "mean", "greatest",
)  # fmt: skip
AXES = ("last", "second last", "third last")
REAL = (
    "share of zeros", "share of equal neighbours", "mean", "mean size", "root mean square",
    "skewness", "kurtosis", "least", "greatest",
    *(f"distance of neighbours along the {axis} axis" for axis in AXES),
    "kurtosis of the differences of neighbours", "roughness",
    *(f"{what} along the {axis} axis" for what in ("slope", "slope of squares") for axis in AXES),
    *(f"slope along the last axis, times that along the {axis}" for axis in AXES[1:]),
    *(f"slope along the {axis} axis, times the mean" for axis in AXES),
    *(f"entry {k + 1} of 8" for k in range(8)),
)  # fmt: skip
WAYS = ("mean", "spread", "2 % quantile", "10 % quantile", "median", "90 % quantile", "98 % quantile")  # fmt: skip
Key = tuple[int, str]
Rows = Sequence[list[list[Numbers]]]


def _blocks(run: Run, key: Key) -> list[Numbers]:
    return [c.laws[key[1]] for c in run.record.calls if c.model == key[0] and key[1] in c.laws]


def _words(place: int, columns: int) -> str:
    names = {len(WAYS) * len(some): some for some in (WHOLE, REAL)}[columns]
    return f"{WAYS[place % len(WAYS)]} over samples of the {names[place // len(WAYS)]}"


def _chance(rows: Rows, place: int) -> tuple[float, ...]:
    """Of one number: how far the two are apart, what seeds and what calls say of chance, and its
    size in the original; the ratio of the two variances."""
    series = [[[block[place] for block in run] for run in arm] for arm in rows]
    one, two = ([fmean(s) for s in arm] for arm in series)
    shifts = [b - a for a, b in zip(one, two, strict=True)]
    own = fmean([spread(s) ** 2 / len(s) for arm in series for s in arm])
    wide = max(spread(one), spread(two), spread(shifts))
    n = math.sqrt(len(shifts))
    ratio = (spread(one) ** 2 + spread(two) ** 2) / 2 / own if own else math.inf
    size = fmean([abs(x) for s in series[0] for x in s])
    return fmean(shifts), wide / n, math.sqrt(2 * own) / n, size, ratio


def wrong(pairs: Sequence[tuple[Run, Run]], key: Key) -> str:
    """What differs most beyond chance in what models are given under one name."""
    return apart(*([_blocks(pair[k], key) for pair in pairs] for k in (0, 1)))


def apart(*rows: list[list[Numbers]]) -> str:
    """The difference that is furthest beyond chance, in words, between the runs of the original and
    those of the other script, pair by pair."""
    pairs = len(rows[0])
    if pairs < PAIRS or min(len(s) for arm in rows for s in arm) < FEW:
        return ""
    columns = {len(block) for arm in rows for s in arm for block in s}
    if len(columns) != 1:
        return ""
    found = {p: _chance(rows, p) for p in range(columns.pop()) if _known(rows, p)}
    moving = [ratio for *_, ratio in found.values() if math.isfinite(ratio)]
    if not moving:
        return ""
    calls = median(moving) < AS_ONE or pairs >= MANY
    most, where = 1.0, -1
    for place, (shift, seeds, own, size, _) in found.items():
        allowed = max((CALLS if calls else SEEDS) * seeds, WITHIN * own, LEAST * size)
        if seeds and own and abs(shift) > most * allowed:
            most, where = abs(shift) / allowed, place
    if where < 0:
        return ""
    now, was = (fmean([b[where] for s in arm for b in s]) for arm in reversed(rows))
    return f"{_words(where, len(rows[0][0][0]))}: {now:.4g} instead of {was:.4g}, {found[where][1]:.2g} is chance"


def hold(ev: Evidence) -> bool | None:
    """One model is given one tensor, once in each step, and nothing tells its law from the
    original's. None: more seeds would tell."""
    runs = [run for pair in ev.pairs for run in pair]
    keys = {(c.model, name) for run in runs for c in run.record.calls for name in c.sums}
    once = all(len(run.record.calls) <= run.steps_made for run in runs)
    if len(keys) != 1 or not once:
        return False
    if len(ev.pairs) < PAIRS:
        return None
    key = keys.pop()
    compared = all(len(_blocks(run, key)) >= FEW for run in runs)
    return compared and not wrong(ev.pairs, key)


def _known(rows: Rows, place: int) -> bool:
    return all(math.isfinite(block[place]) for arm in rows for s in arm for block in s)
