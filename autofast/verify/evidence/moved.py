"""Batches as a model is given them, where one of two scripts makes of a loaded tensor what the
other loads: what is normalised, or changed at random, in the data set of the one is so after
loading in the other, and the training sees only what the model is given.

In the one script a tensor of every batch is just what a model is given, call by call; in the other
it is not. Then what the model is given stands for it there, in checksums and single items alike. Of
a tensor beside it that no model is given (a mask that is turned with its picture), and that changes
at random in one of the two alone, nothing is known then but what losses are given.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from autofast.verify.estimates import gap
from autofast.verify.evidence.record import Numbers, Pass, Record, Run

FED = 32  # added to the number of a loader where its items are those that a model was given
SAME = 1e-6  # sums of the same values, in another order
ROWS = 3  # numbers of an item for each tensor


@dataclass(frozen=True)
class Place:
    """A tensor in the batches of a loader, and the name under which a model is given it."""

    loader: int
    leaf: int
    model: int
    name: str

    def passes(self, record: Record) -> list[Pass]:
        return _passes(record, self.loader)

    def loaded(self, record: Record) -> list[float]:
        return [x for p in self.passes(record) for x in p.leaves[self.leaf]]

    def given(self, record: Record) -> list[float]:
        mine = (c for c in record.calls if c.model == self.model)
        return [c.sums[self.name] for c in mine if self.name in c.sums]

    def as_loaded(self, record: Record) -> bool | None:
        """None: not one call for each batch."""
        one, two = self.loaded(record), self.given(record)
        return _equal(one, two) if one and len(one) == len(two) else None


def _passes(record: Record, loader: int) -> list[Pass]:
    return [p for p in record.passes if p.training and p.loader == loader]


def _equal(one: Sequence[float], two: Sequence[float]) -> bool:
    return all(gap(x, y) <= SAME * abs(x) for x, y in zip(one, two, strict=True))


def as_given(a: Run, b: Run, runs: Iterable[Run]) -> dict[int, Run]:
    """Of ``runs``, by id, those that change: all of the script that loads something else."""
    runs = list(runs)
    if any(not run.ok or len(run.records) != 1 for run in (a, b)):
        return {}
    found: dict[int, Run] = {}
    moved: set[int] = set()
    places = list(_places(a, b))
    for place in places:
        told = [place.as_loaded(run.record) for run in (a, b)]
        if sorted(map(str, told)) != ["False", "True"] or _load_alike(place, a, b):
            continue
        arm = (a, b)[told.index(False)].arm
        mine = [found.get(id(run), run) for run in runs if run.arm == arm and run.ok]
        if all(len(run.records) == 1 and _fits(place, run.record) for run in mine):
            changed = ((id(run), run) for run in runs if run.arm == arm and run.ok)
            found |= {k: _moved(place, found.get(k, run)) for k, run in changed}
            moved.add(place.loader)
    for loader, leaf in _targets(moved, places, a, b):
        some = ((id(run), run) for run in runs if run.ok and len(run.records) == 1)
        found |= {k: _without(loader, leaf, found.get(k, run)) for k, run in some}
    return found


def _targets(moved: set[int], given: Sequence[Place], a: Run, b: Run) -> Iterator[tuple[int, int]]:
    """Tensors that no model is given, the last ones first, and that change from pass to pass in one
    of the two alone."""
    known = {(place.loader, place.leaf) for place in given}
    for loader in moved:
        least = min(len(p.leaves) for run in (a, b) for p in _passes(run.record, loader))
        for leaf in reversed(range(least)):
            if (loader, leaf) not in known and {_changes(run, loader, leaf) for run in (a, b)} == {False, True}:  # fmt: skip
                yield loader, leaf


def _changes(run: Run, loader: int, leaf: int) -> bool | None:
    """Whether items are others in another pass; None: not known."""
    found: dict[int, float] = {}
    again = False
    for one in _passes(run.record, loader):
        for (indices, rows), total in zip(one.items, one.leaves[leaf], strict=False):
            row = _row(rows, total)
            for index, x in zip(indices, rows[ROWS * row] if row is not None else (), strict=False):
                again = again or index in found
                if gap(found.setdefault(index, x), x) > SAME * abs(x):
                    return True
    return False if again else None


def _without(loader: int, leaf: int, run: Run) -> Run:
    passes = (
        _without_leaf(p, leaf) if p.training and p.loader == loader and len(p.leaves) > leaf else p
        for p in run.record.passes
    )
    return replace(run, records=(replace(run.record, passes=tuple(passes)),))


def _without_leaf(one: Pass, leaf: int) -> Pass:
    lost = one.leaves[leaf]
    sums = (x - y * (1 + leaf / 8) for x, y in zip(one.checksums, lost, strict=True))
    places = [_row(rows, y) for (_, rows), y in zip(one.items, lost, strict=False)]
    items = tuple(
        (indices, rows if k is None else (*rows[: ROWS * k], *rows[ROWS * (k + 1) :]))
        for (indices, rows), k in zip(one.items, places, strict=True)
    )
    sketches = tuple(
        shown if k is None else (*shown[:k], *shown[k + 1 :])
        for shown, k in zip(one.sketches, places, strict=True)
    )
    leaves = (*one.leaves[:leaf], (), *one.leaves[leaf + 1 :])
    return replace(one, checksums=tuple(sums), leaves=leaves, items=items, sketches=sketches)


def _load_alike(place: Place, *runs: Run) -> bool:
    """The same data: what is made of them (other types) is told by the models' own numbers."""
    sums = [p.leaves[place.leaf] for r in runs for p in place.passes(r.record) if p.complete]
    totals = [(sum(some), sum(map(abs, some))) for some in sums]
    return bool(totals) and all(gap(x, totals[0][0]) <= SAME * size for x, size in totals)


def _fits(place: Place, record: Record) -> bool:
    return all(len(p.leaves) > place.leaf for p in place.passes(record)) and place.as_loaded(record) is not None  # fmt: skip


def _places(a: Run, b: Run) -> Iterator[Place]:
    """A tensor once: by the first name under which either is given it as it was loaded."""
    records = [run.record for run in (a, b)]
    names = [dict.fromkeys((c.model, n) for c in r.calls for n in c.sums) for r in records]
    common = [key for key in names[0] if key in names[1]]
    loaders = [{p.loader for p in r.passes if p.training and p.leaves} for r in records]
    for loader in sorted(loaders[0] & loaders[1]):
        mine = [p for r in records for p in r.passes if p.training and p.loader == loader]
        for leaf in range(min(len(p.leaves) for p in mine)):
            some = (Place(loader, leaf, *key) for key in common)
            yield from [p for p in some if any(p.as_loaded(r) for r in records)][:1]


def _moved(place: Place, run: Run) -> Run:
    record, values, passes = run.record, place.given(run.record), []
    fed = {(p.loader - FED, p.begun, p.ended): p for p in record.fed}
    for one in record.passes:
        if one.training and one.loader == place.loader:
            now, values = values[: len(one.checksums)], values[len(one.checksums) :]
            made = fed.get((one.loader, one.begun, one.ended))
            one = _of_what_is_given(one, place.leaf, tuple(now), made)
        passes.append(one)
    kept = tuple(p for p in record.fed if p.loader != FED + place.loader)
    return replace(run, records=(replace(record, passes=tuple(passes), fed=kept),))


def _of_what_is_given(one: Pass, leaf: int, values: Numbers, made: Pass | None) -> Pass:
    leaves = (*one.leaves[:leaf], values, *one.leaves[leaf + 1 :])
    sums = tuple(
        x + (new - old) * (1 + leaf / 8)
        for x, old, new in zip(one.checksums, one.leaves[leaf], values, strict=True)
    )
    items, sketches = _items(one, leaf, values, made) if one.items else ((), ())
    return replace(one, checksums=sums, leaves=leaves, items=items, sketches=sketches, made=True)


def _items(one: Pass, leaf: int, values: Numbers, made: Pass | None) -> tuple[Any, Any]:
    """Those of the tensor as they were given; of batches of which nothing is known their numbers
    alone."""
    known = zip(made.items, made.sketches, strict=True) if made else ()
    by_items = {indices: (rows, shown) for (indices, rows), shown in known}
    items, sketches = [], []
    batches = zip(one.items, one.sketches, one.leaves[leaf], values, strict=False)
    for (indices, rows), shown, old, new in batches:
        row = _row(rows, old)
        if row is None:  # no items of this tensor: labels
            items.append((indices, rows))
            sketches.append(shown)
            continue
        given, drawn = by_items.get(indices, ((), ()))
        place = _row(given, new)
        if place is None:
            items.append((indices, ()))
            sketches.append(())
            continue
        its = given[ROWS * place : ROWS * (place + 1)]
        items.append((indices, (*rows[: ROWS * row], *its, *rows[ROWS * (row + 1) :])))
        sketches.append((*shown[:row], drawn[place], *shown[row + 1 :]))
    return tuple(items), tuple(sketches)


def _row(rows: Sequence[Numbers], total: float) -> int | None:
    """Which tensor of the items has this checksum."""
    sums = [(sum(some), sum(map(abs, some))) for some in rows[::ROWS]]
    near = (k for k, (x, size) in enumerate(sums) if gap(x, total) <= SAME * size)
    return next(near, None)
