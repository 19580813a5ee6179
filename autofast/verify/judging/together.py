"""Whether the random changes of items that stand in one batch go together, of whatever kind they
are: a crop, a shift, a mask drawn once for the batch.

A shift moves each item by its own amount in its own direction, so that no number of single items
tells of it. But the same draw does the same to
an item: items that meet in two batches are, each with itself, alike in both or unlike in both where
the draw is the batch's, and one by one where it is the item's. Looked at are the distances of an
item's random projections (``Pass.sketches``) between two batches, as a share of what is usual for
the item.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from autofast.verify.estimates import fmean, pstdev
from autofast.verify.evidence.record import Pass, Run

MOST_PAIRS = 100_000  # of places of one item, in one run
Vector = tuple[float, ...]
Meeting = tuple[int, int]  # two batches


def _passes(run: Run) -> tuple[Pass, ...]:
    return (*run.record.passes, *run.record.fed)


def _places(run: Run, leaf: int) -> dict[int, dict[int, Vector]]:
    """Item -> batch of the run -> its projections; the first of several in one batch."""
    found: dict[int, dict[int, Vector]] = {}
    batch = 0
    for one in (p for p in _passes(run) if p.training and p.sketches):
        for (indices, _), leaves in zip(one.items, one.sketches, strict=False):
            batch += 1
            for index, vector in zip(indices, leaves[leaf] if leaf < len(leaves) else (), strict=False):  # fmt: skip
                if all(map(math.isfinite, vector)):
                    # Loaders number their items alike.
                    found.setdefault(index * 64 + one.loader % 64, {}).setdefault(batch, vector)
    return found


def _nearness(places: dict[int, dict[int, Vector]]) -> dict[Meeting, list[float]]:
    """Of every item that stands in both batches: 1 where it is the same in both, near 0 where it is
    as unlike as never else.
    """
    found: dict[Meeting, list[float]] = {}
    pairs = 0
    for batches in places.values():
        entries = sorted(batches.items())
        pairs += len(entries) * (len(entries) - 1) // 2
        if pairs > MOST_PAIRS:
            break
        far = {
            (b, c): sum((x - y) ** 2 for x, y in zip(one, two, strict=True))
            for i, (b, one) in enumerate(entries)
            for c, two in entries[i + 1 :]
        }
        usual = fmean(far.values()) if far else 0.0
        if usual > 1e-12 * max(sum(x * x for x in one) for one in batches.values()):
            for meeting, distance in far.items():
                found.setdefault(meeting, []).append(math.exp(-distance / usual))
    return found


def together(runs: Iterable[Run], leaf: int) -> tuple[float, int]:
    """Correlation of the nearness of two items that meet in two batches, and from how many of
    those.
    """
    total, count = 0.0, 0
    for run in runs:
        met = _nearness(_places(run, leaf))
        values = [x for some in met.values() for x in some]
        wide = pstdev(values) if len(values) > 1 else 0.0
        if wide < 1e-9:
            continue
        mean = fmean(values)
        for some in met.values():
            z = [(x - mean) / wide for x in some]
            total += (sum(z) ** 2 - sum(x * x for x in z)) / 2
            count += len(z) * (len(z) - 1) // 2
    return (total / count, count) if count else (0.0, 0)


def leaves(runs: Sequence[Run]) -> int:
    """How many tensors of a batch there are projections of, in every run."""
    sketches = [[x for p in _passes(run) if p.training for x in p.sketches] for run in runs]
    return min((max(map(len, some), default=0) for some in sketches), default=0)
