"""Random changes of single items (flips, noise, gain): drawn for every item, as strongly as in the
original, and anew.

A DataLoader over a map-style data set tells which items a batch holds, so that an item is compared
with itself in the other passes of its
run: what remains, its *deviation*, is what was drawn for it. Four questions, each by the numbers
that the probe keeps of an item:

    level    the mean of an item is that of the original's
    amount   deviations scatter as much as in the original
    together deviations of one batch belong together no more than in the original (what moves each
             item by its own amount in its own direction: together.py)
    anew     deviations at the same place of the next pass, or of the next batch, are not those of
             before (worker seeds)

A difference counts beyond CRITICAL standard errors and beyond a least size that matters.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TypeVar

from autofast.model.several import grouped
from autofast.verify.estimates import difference, fmean, spread
from autofast.verify.evidence import course
from autofast.verify.evidence.gathered import Evidence
from autofast.verify.evidence.record import Run
from autofast.verify.judging import together
from autofast.verify.result import Check, differs, holds

CRITICAL = 6.0
AMOUNT = 0.1  # least difference of the log of the scatter, LEAST of a correlation
LEAST = 0.1
FEW = 0.02  # share of the items
NAMES = ("weighted sum", "sum of squares", "sum")
T = TypeVar("T")
Key = tuple[int, int]  # loader, number of the row


@dataclass
class Items:
    """Of one run and one row: values by item; deviations, standardized, by pass of the loader,
    batch and place; how many values are no numbers.
    """

    values: dict[int, list[float]] = field(default_factory=dict)
    placed: dict[tuple[int, int, int], tuple[int, float]] = field(default_factory=dict)
    deviations: dict[tuple[int, int, int], tuple[int, float]] = field(default_factory=dict)
    squares: list[float] = field(default_factory=list)
    scale: float = 0.0
    odd: int = 0

    def finish(self) -> None:
        means = {i: fmean(v) for i, v in self.values.items() if len(v) > 1}
        self.squares = [
            sum((x - means[i]) ** 2 for x in v) / (len(v) - 1)
            for i, v in self.values.items()
            if i in means
        ]
        size = max((abs(m) for m in means.values()), default=0.0)
        variance = fmean(self.squares) if self.squares else 0.0
        self.scale = math.sqrt(variance) if variance > (1e-7 * size) ** 2 else 0.0
        if self.scale:
            self.deviations = {
                place: (i, (x - means[i]) / self.scale)
                for place, (i, x) in self.placed.items()
                if i in means
            }


@lru_cache(maxsize=256)
def _items(run: Run) -> dict[Key, Items]:
    found: dict[Key, Items] = {}
    for record in run.records:
        passes: Counter[int] = Counter()
        for one in (p for p in (*record.passes, *record.fed) if p.training and p.items):
            number = passes[one.loader]
            passes[one.loader] += 1
            for batch, (indices, rows) in enumerate(one.items):
                for row, values in enumerate(rows):
                    here = found.setdefault((one.loader, row), Items())
                    for place, (index, value) in enumerate(zip(indices, values, strict=True)):
                        if not math.isfinite(value):
                            here.odd += 1
                        else:
                            here.values.setdefault(index, []).append(value)
                            here.placed[number, batch, place] = (index, value)
    for here in found.values():
        here.finish()
    return found


def _of(runs: Iterable[Run], key: Key) -> list[Items]:
    return [_items(run).get(key, Items()) for run in runs]


def _level(before: Sequence[Items], after: Sequence[Items]) -> str:
    """Paired by item, in runs of the same seed."""
    shifts, errors = [], []
    for a, b in zip(before, after, strict=True):
        both = [i for i in a.values if i in b.values and len(a.values[i]) > 1]
        if len(both) < 20:
            continue
        moved = [fmean(b.values[i]) - fmean(a.values[i]) for i in both]
        noise = sum(a.scale**2 / len(a.values[i]) + b.scale**2 / len(b.values[i]) for i in both)
        shifts.append(fmean(moved))
        errors.append(math.sqrt(noise) / len(both))
    if len(shifts) < 4 or len({s > 0 for s in shifts}) > 1:
        return ""
    shift, error = fmean(shifts), math.sqrt(sum(e * e for e in errors)) / len(errors)
    error = max(error, spread(shifts) / math.sqrt(len(shifts)))
    size = fmean([abs(fmean(v)) for a in before for v in a.values.values()])
    if abs(shift) > max(CRITICAL * error, 1e-6 * size) and any(a.scale for a in before):
        return f"the mean of an item is {shift:+.3g} off, {error:.2g} is chance"
    return ""


def _amount(before: Sequence[Items], after: Sequence[Items]) -> str:
    one, two = ([fmean(x.squares) for x in some if x.squares] for some in (before, after))
    if len(one) < 4 or len(two) < 4:
        return ""
    a, b = (math.sqrt(fmean(values)) for values in (one, two))
    if not any(x.scale for x in before):
        if all(x.scale for x in after):
            return f"items change from pass to pass by {b:.3g}; in the original they are the same"
        return ""
    if not any(x.scale for x in after):
        return f"items are the same in every pass; in the original they change by {a:.3g}"
    # Of many runs one or two come near the others' in any case: then their means have to be far
    # apart.
    wide = math.hypot(spread(one) / math.sqrt(len(one)), spread(two) / math.sqrt(len(two)))
    apart = min(one) > max(two) or max(one) < min(two)
    apart = apart or len(one) >= 8 and abs(fmean(one) - fmean(two)) > CRITICAL * wide
    every = [[s for x in some for s in x.squares] for some in (before, after)]
    error = math.hypot(*(spread(v) / math.sqrt(len(v)) for v in every))
    if apart and abs(a**2 - b**2) > CRITICAL * error and abs(math.log(b / a)) > AMOUNT / 2:
        return f"items change from pass to pass by {b:.3g}, by {a:.3g} in the original"
    return ""


def _reordered(before: Sequence[Items], after: Sequence[Items]) -> bool:
    """Batches of constant items hold the same items in other places: which is which cannot be told
    by the place then.
    """
    for a, b in zip(before, after, strict=True):
        batches = grouped(
            ((number, batch), entry) for (number, batch, _), entry in b.placed.items()
        )
        for entries in batches.values():
            if a.scale or any(index not in a.values for index, _ in entries):
                return False
            known = sorted(a.values[index][0] for index, _ in entries)
            found = sorted(value for _, value in entries)
            if not all(math.isclose(x, y, rel_tol=1e-6) for x, y in zip(known, found, strict=True)):
                return False
    return any(b.scale for b in after)


def _correlated(
    measure: Callable[[Sequence[T]], tuple[float, int]],
    before: Sequence[T],
    after: Sequence[T],
    wide: float,
) -> tuple[float, float] | None:
    """What ``measure`` finds in the original and in the other where chance does not make such a
    difference; ``wide``: the variance of one value.

    Values that share an item are not independent, and labels that seldom change are far from
    normal: so the scatter over seeds counts as well.
    """
    (one, n), (two, m) = measure(before), measure(after)
    error = math.sqrt(wide / max(1, n) + wide / max(1, m))
    if min(n, m) < 50 or abs(two - one) <= max(CRITICAL * error, LEAST):
        return None
    single = [[measure([x])[0] for x in some] for some in (before, after)]
    seen = difference(*single).half(0.995) if min(map(len, single)) > 1 else 0.0
    return (one, two) if abs(two - one) > seen else None


def _repeated(some: Sequence[Items], ahead: tuple[int, int]) -> tuple[float, int]:
    """Mean product of deviations with those at the same place ``ahead`` passes and batches, of
    other items.
    """
    products = []
    for one in some:
        for (number, batch, place), (i, z) in one.deviations.items():
            other = one.deviations.get((number + ahead[0], batch + ahead[1], place))
            if other is not None and other[0] != i:
                products.append(z * other[1])
    return (fmean(products), len(products)) if products else (0.0, 0)


def _other_data(items: Items) -> bool:
    """From one pass to the next all items change, or none does: they are those of another data set
    (a fold), and nothing is drawn for them.
    """
    passes: dict[int, dict[int, float]] = {}
    for (number, _, _), (index, value) in items.placed.items():
        passes.setdefault(number, {})[index] = value
    shares = []
    for number, now in passes.items():
        before = passes.get(number - 1, {})
        both = [index for index in now if index in before]
        if both:
            shares.append(fmean([float(now[index] != before[index]) for index in both]))
    return bool(shares) and min(shares) < FEW and max(shares) > 1 - FEW and all(not FEW < s < 1 - FEW for s in shares)  # fmt: skip


def _different(key: Key, before: Sequence[Items], after: Sequence[Items]) -> str:
    if any(x.odd for x in after) and not any(x.odd for x in before):
        return "items hold what is no number; in the original none does"
    if _reordered(before, after):
        return ""
    for text in (_level(before, after), _amount(before, after)):
        if text:
            return text
    if not any(x.scale for x in before) or not any(x.scale for x in after):
        return ""
    for ahead, words in (((1, 0), "pass"), ((0, 1), "batch")):
        if found := _correlated(partial(_repeated, ahead=ahead), before, after, 2.0):
            return f"what is drawn comes again in the next {words} (correlation {found[1]:.2f}, {found[0]:.2f} in the original): seeds of workers?"
    return ""


def drawn(ev: Evidence) -> Check | None:
    """The four questions."""
    runs = course.arms(ev)
    keys = sorted(set.intersection(*({*_items(run)} for some in runs for run in some)))
    looked = 0
    for key in keys:
        before, after = (_of(some, key) for some in runs)
        if not any(x.squares for x in before) or not any(x.squares for x in after):
            continue
        if all(map(_other_data, (*before, *after))):
            continue
        looked += 1
        text = _different(key, before, after)
        if text:
            return differs(text + f" (item {key[1] // 3 + 1} of a batch, {NAMES[key[1] % 3]})")
    for leaf in range(together.leaves([run for some in runs for run in some])):
        looked += 1
        found = _correlated(partial(together.together, leaf=leaf), runs[0], runs[1], 3.0)
        if found:
            text = (
                f"items that meet again are alike or unlike together (by {found[1]:.2f}, by {found[0]:.2f} in the original): "
                "one draw for the batch in place of one for each item, or the other way round"
            )
            return differs(f"{text} (item {leaf + 1} of a batch)")
    return holds(f"as in the original, in {looked} ways of looking") if looked else None


def chosen(ev: Evidence) -> Check | None:
    """Which items are drawn: as often each, as by a sampler that weighs them."""
    runs = course.arms(ev)
    loaders = set.intersection(*({*_indices(run)} for some in runs for run in some))
    for loader in sorted(loaders):
        before, after = ([_indices(run)[loader] for run in some] for some in runs)
        if all(_other_chances(before[k::2], after[k::2]) for k in (0, 1)):
            text = "some come more or less often than in the original, under every second seed each"
            return differs(text)
    return holds(f"as in the original, of {len(loaders)} loaders") if loaders else None


def _indices(run: Run) -> dict[int, list[list[int]]]:
    """By loader: the items of its passes."""
    return grouped(
        (one.loader, [i for some, _ in one.items for i in some])
        for one in run.record.passes
        if one.training and one.items
    )


def _other_chances(before: Sequence[list[list[int]]], after: Sequence[list[list[int]]]) -> bool:
    """The numbers of times that each item is drawn, over all runs, are further apart than those of
    half of the passes and the others."""
    one, two = ([p for run in some for p in run] for some in (before, after))
    own = max(_unlike(some[::2], some[1::2]) for some in (one, two))
    apart, many = _unlike(one, two), len({i for p in one for i in p})
    return apart > 1.5 * own and apart - own > 4 * math.sqrt(2 / many)


def _unlike(one: Sequence[Sequence[int]], two: Sequence[Sequence[int]]) -> float:
    """How far the numbers of times are apart that each item is drawn: 1 by chance, where draws are
    independent, whatever the chances."""
    a, b = (Counter(i for some in passes for i in some) for passes in (one, two))
    share = a.total() / (a.total() + b.total())
    return fmean([(a[i] - share * n) ** 2 / (n * share * (1 - share)) for i, n in (a + b).items()])
