"""The data that training saw, the files it saved."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise, product

from autofast.model.several import grouped
from autofast.report.style import count
from autofast.verify.estimates import fmean, gap, spread, t_quantile
from autofast.verify.evidence import course
from autofast.verify.evidence.alike import SAME
from autofast.verify.evidence.gathered import Evidence
from autofast.verify.evidence.record import Checkpoint, Pass, Run
from autofast.verify.judging.invariants import shown
from autofast.verify.result import Check, answer, differs, holds, untold

CLOSE = 1e-9  # checksums are float64 sums: equal data differ by less, whatever the order of summing
ENOUGH = 3  # batches in a pass, so that its order says something
# chance at which few and coarse values (the sums of labels) of two passes may be equal by accident
LUCK = 1e-6
# A setting of a parameter group: `initial_lr` is what a scheduler leaves, and any optimizer takes.
GROUP = re.compile(r"(^|/)param_groups/\d+/[^/]+$")

Sums = tuple[float, ...]
View = int | None  # None: the whole batch; else the number of a tensor in its structure
# The view of the numbers of its items, where a data set has them: all else of it may be random.
INDICES = -1


def _of(one: Pass, view: View) -> Sums:
    if view == INDICES:
        return tuple(float(sum(i * n for i, n in enumerate(some, 1))) for some, _ in one.items)
    return one.checksums if view is None else one.leaves[view] if view < len(one.leaves) else ()


def _structures(*runs: Run) -> frozenset[int]:
    """How many tensors batches of training passes have."""
    passes = [p for run in runs for r in run.records for p in r.passes]
    return frozenset(len(p.leaves) for p in passes if p.training and p.checksums)


def _views(*runs: Run) -> list[View]:
    """The whole, and every tensor where there are several, in all passes."""
    least = min(_structures(*runs), default=0)
    return [None, *range(least)] if least > 1 else [None]


def _named_view(view: View) -> str:
    if view == INDICES:
        return " (by the numbers of the items)"
    return "" if view is None else f" (item {view + 1} of a batch)"


def _passes(run: Run, view: View = None) -> list[Sums]:
    """Checksums of the training passes that have them, over all ranks in the order of ranks."""
    return [_of(p, view) for r in run.records for p in r.passes if p.training and _of(p, view)]


def _totals(run: Run, view: View = None) -> list[tuple[int, float, float, int]]:
    """(loader, sum of checksums, sum of their sizes, samples) of each complete training pass,
    summed over ranks.
    """
    by_rank = [
        [p for p in r.passes if p.training and _of(p, view) and p.complete] for r in run.records
    ]
    found = []
    for group in zip(*by_rank, strict=False):
        values = [c for p in group for c in _of(p, view)]
        found.append(
            (group[0].loader, sum(values), sum(map(abs, values)), sum(p.samples for p in group))
        )
    return found


def _equal(x: Sequence[float], y: Sequence[float], close: float = CLOSE) -> bool:
    """Over their common length."""
    size = max((abs(v) for v in (*x, *y) if math.isfinite(v)), default=1.0)
    return all(gap(p, q) <= close * size for p, q in zip(x, y, strict=False))


def _off(x: float, y: float, size: float, close: float = CLOSE) -> bool:
    """Two sums of equal data are no further apart; ``size``: of what was summed."""
    return gap(x, y) > (close * size if math.isfinite(size) else 0.0)


def _close(*runs: Run) -> float:
    """How far checksums of equal data may differ: images that became floats on the device were
    divided there, which rounds otherwise.
    """
    made = any(p.made for run in runs for record in run.records for p in record.passes)
    return SAME if made else CLOSE


def _tells(sums: Sums) -> bool:
    """Enough batches to tell one order from another: a NaN is like every other NaN."""
    return sum(map(math.isfinite, sums)) >= ENOUGH


def _alike(passes: Sequence[Sums]) -> bool | None:
    """All passes have the same batches in the same order; None where fewer than two are long enough
    to say.
    """
    long = [p for p in passes if _tells(p)]
    return all(_equal(long[0], p) for p in long[1:]) if len(long) > 1 else None


def order(ev: Evidence) -> Check | None:
    """At equal seed, the same batches in the same order: neither exact rewrites nor those that only
    round draw other samples.

    Of the whole batch, or of those parts of it that the original reproduces.
    """
    if not _passes(ev.a) or not _passes(ev.b):
        return None
    close = _close(ev.a, ev.b)
    for view in _views(*ev.originals, ev.b):
        a, b = _passes(ev.a, view), _passes(ev.b, view)
        again = [_passes(o, view) for o in ev.originals[1:]]
        if any(
            [len(p) for p in o] != [len(p) for p in a] or not all(map(_equal, a, o)) for o in again
        ):
            continue
        words = _named_view(view)
        for i, (x, y) in enumerate(zip(a, b, strict=False)):
            if len(x) != len(y) or not _equal(x, y, close):
                equal = [_equal((p,), (q,), close) for p, q in zip(x, y, strict=False)]
                place = [*equal, False].index(False)
                return differs(f"pass {i + 1} differs from batch {place + 1} on{words}")
        if len(a) != len(b):
            text = f"{len(b)} passes over the training data, {len(a)} in the original"
            return differs(text)
        if view is None or view == _views(*ev.originals, ev.b)[-1]:
            text = f"{count(sum(map(len, a)), 'batch')} in {count(len(a), 'pass')}, equal{words}"
            return holds(text)
    return untold("the original itself does not draw the same batches twice")


def content(ev: Evidence) -> Check | None:
    """A complete pass holds the same samples, in whatever order: its checksums have the same sum.

    Only where the data themselves are deterministic: the original's sum is the same in every pass
    and under every seed.
    """
    checked = 0
    seeds_or_passes = len(ev.others) > 1 or len(_totals(ev.a)) > 1
    after = course.arms(ev)[1]
    for view in _views(*ev.originals, *ev.others, *after):
        known = grouped(
            (loader, (total, size))
            for run in (*ev.originals, *ev.others)
            for loader, total, size, _ in _totals(run, view)
        )
        for run in after:
            for loader, total, _, _ in _totals(run, view):
                sums = known.get(loader, [])
                if not sums or not seeds_or_passes or any(_off(s, sums[0][0], n) for s, n in sums):
                    continue  # augmented at random, or only a part of the data
                checked += 1
                if _off(total, sums[0][0], sums[0][1], _close(ev.a, ev.b)):
                    text = f"the values of a complete pass sum to {total:.10g}, to {sums[0][0]:.10g} in every pass of the original"
                    return answer(
                        None if ev.effect == "recipe" else False, text + _named_view(view)
                    )
    return holds(f"{checked} sums over complete passes are equal") if checked else None


def shuffled(ev: Evidence) -> Check | None:
    """Where the original's order of samples differs from pass to pass, or from seed to seed, so
    does the other's: of all passes, and of each loader where there are several. Also by the numbers
    of items, unless it is the original whose order is fixed: the data set may be reordered."""
    a_runs, b_runs = course.arms(ev)
    found = []
    sources = [None, *_loaders(a_runs, b_runs)]
    for loader, view in product(sources, (*_views(*a_runs, *b_runs), INDICES)):
        place = (f" (loader {loader + 1})" if loader is not None else "") + _named_view(view)
        passes = [[_ranked(r, view, loader) for r in runs] for runs in (a_runs, b_runs)]
        firsts = [[_firsts(runs, view, loader)] for runs in (a_runs, b_runs)]
        tests: list[tuple[str, str, list[list[Sums]], list[list[Sums]]]] = [
            ("in every pass", "from pass to pass", passes[0], passes[1]),
            ("under every seed", "from seed to seed", firsts[0], firsts[1]),
        ]
        for same, vary, one, two in tests:
            for words, change in (
                ("the same batches in the same order", list),
                ("the same batches, though in another order", sorted),
            ):
                lists = [
                    [[tuple(change(p)) for p in passes] for passes in some] for some in (one, two)
                ]
                before, after = ([_alike(passes) for passes in some] for some in lists)
                lost = False in before and True in after and not (True in before and False in after)
                if lost and (view is None or _luck(lists[0], lists[1]) < LUCK):
                    text = f"{words} {same}; in the original they differ {vary}: shuffling or augmentation was lost"
                    return differs(text + place)
                if change is sorted or view == INDICES:
                    continue
                known = [{*some} - {None} for some in (before, after)]
                if known[0] == {True} and False in after and ev.effect != "recipe":
                    text = f"the batches differ {vary}; in the original they are the same {same}"
                    return differs(text + place)
                if view is None and loader is None and all(known):
                    found.append(f"differ {vary}" if False in before else f"are the same {same}")
    return holds(f"batches {' and '.join(found)}, as in the original") if found else None


def _luck(before: Sequence[Sequence[Sums]], after: Sequence[Sequence[Sums]]) -> float:
    """Chance that the passes of ``after`` which are alike are so by accident, the values being as
    coarse as those of ``before``.
    """
    long = [[p for p in passes if _tells(p)] for passes in before]
    met = [
        _equal((x,), (y,))
        for passes in long
        for p, q in pairwise(passes)
        for x, y in zip(p, q, strict=False)
    ]
    share = (sum(met) + 1) / (len(met) + 2)
    chances = [1.0]
    for passes in after:
        kept = [p for p in passes if _tells(p)]
        if _alike(passes):
            # The last is what the others leave.
            chances.append(math.prod(share ** (min(len(p), len(kept[0])) - 1) for p in kept[1:]))
    return min(chances)


def _ranked(run: Run, view: View, loader: int | None) -> list[Sums]:
    passes = [p for p in run.record.passes if p.training] if run.records else []
    return [_of(p, view) for p in passes if loader in (None, p.loader) and _of(p, view)]


def _firsts(runs: Sequence[Run], view: View, loader: int | None) -> list[Sums]:
    return [passes[0] for passes in (_ranked(run, view, loader) for run in runs) if passes]


def _loaders(*some: Sequence[Run]) -> list[int]:
    """Those that all runs train by, with as many batches in a pass; none where that is one."""
    runs = [run for part in some for run in part if run.records]
    sizes: list[dict[int, int]] = [{} for _ in runs]
    for known, run in zip(sizes, runs, strict=True):
        for one in (p for p in run.record.passes if p.training):
            known[one.loader] = max(one.batches, known.get(one.loader, 0))
    common = sorted(set.intersection(*(set(known.items()) for known in sizes))) if sizes else []
    return [loader for loader, _ in common] if len(common) > 1 else []


def level(ev: Evidence) -> Check | None:
    """Where items are random: the mean value of a sample, pass by pass, scatters as in the
    original: it neither jumps nor drifts.

    Limits are those of a single further value (Student's t at 1 - 1e-7, and 6 standard deviations
    at least), from all passes and seeds.
    """
    return _of_loaders(ev, _levels, _jumps)


def scatter(ev: Evidence) -> Check | None:
    """Batches differ from each other as much as in the original: not more (neighbours in one batch,
    one random draw for all of its samples), not less (every batch balanced).

    The variance of the mean over a batch, over all batches of full size of all passes and seeds.
    Its logarithm has the standard error sqrt((kurtosis - 1) / n) (Box 1953, Biometrika 40,
    318-335), and 6 of those are allowed, and a factor of 1.5. Batches of one pass share its
    samples, which makes both estimates better than that, not worse.
    """
    return _of_loaders(ev, _means, _scatters)


def _of_loaders(
    ev: Evidence,
    of: Callable[[Run, View, int], list[float]],
    test: Callable[[list[float], list[float]], str | None],
) -> Check | None:
    """Of each tensor, and of each loader for training; what is the same in all runs, ``content``
    tells. ``test``: what is wrong, None where too little is known."""
    arms = course.arms(ev)
    if len({_structures(*some) for some in arms}) > 1:
        return None  # what is made of the batches tells whether something is missing
    runs = [run for some in arms for run in some]
    trained = {p.loader for run in arms[0] for r in run.records for p in r.passes if p.training}
    looked = 0
    for view, loader in product(_views(*runs), sorted(trained)):
        one, two = ([x for run in some for x in of(run, view, loader)] for some in arms)
        if len(one) < 4 or not two or not all(map(math.isfinite, one)):
            continue
        text = test(one, two) if spread(one) > CLOSE * max(map(abs, one)) else None
        if text:
            return answer(None if ev.effect == "recipe" else False, text + _named_view(view))
        looked += text is not None
    return holds(f"as in the original, in {looked} items") if looked else None


def _levels(run: Run, view: View, loader: int) -> list[float]:
    return [total / n for k, total, _, n in _totals(run, view) if n and k == loader]


def _jumps(before: list[float], after: list[float]) -> str:
    mean, wide = fmean(before), spread(before)
    often = max(6.0, t_quantile(1 - 1e-7, len(before) - 1))
    limit = often * wide * math.sqrt(1 + 1 / len(before))
    worst = max(after, key=lambda one: gap(one, mean))
    if gap(worst, mean) <= max(limit, 1e-3 * abs(mean)):
        return ""
    return f"{worst:.6g} in one of {len(after)} passes, {mean:.6g} ± {wide:.2g} in {len(before)} of the original"


def _scatters(one: list[float], two: list[float]) -> str | None:
    if min(len(one), len(two)) < 20 or len(set(one)) < 10:
        return None
    if not all(map(math.isfinite, two)):
        return "means over batches are not all numbers, as they are in the original"
    ratio = 2 * math.log(spread(two) / spread(one)) if spread(two) else -math.inf
    error = math.sqrt((_kurtosis(one) - 1) / len(one) + (_kurtosis(two) - 1) / len(two))
    if abs(ratio) <= max(6 * error, math.log(1.5)):
        return ""
    return f"means over batches scatter by {spread(two):.3g}, by {spread(one):.3g} in the original"


def _means(run: Run, view: View, loader: int) -> list[float]:
    """Of all batches of full size, the last of a pass left out where passes are not a multiple of
    it.
    """
    found = []
    for p in (p for record in run.records for p in record.passes):
        sums = _of(p, view)
        if p.training and p.loader == loader and sums and p.batches == len(sums):
            size = math.ceil(p.samples / p.batches)
            found += [x / size for x in (sums if size * p.batches == p.samples else sums[:-1])]
    return found


def _kurtosis(values: Sequence[float]) -> float:
    mean = fmean(values)
    second = fmean((v - mean) ** 2 for v in values)
    return max(3.0, fmean((v - mean) ** 4 for v in values) / second**2) if second else 3.0


def _named(saved: Sequence[Checkpoint], masked: bool) -> dict[str, Checkpoint]:
    """By path, with its digits masked where they are not reproducible; of several, the last."""
    return {re.sub(r"\d+", "#", c.path) if masked else c.path: c for c in saved}


def _option(kind: str) -> bool:
    """A plain value: ``fused`` of an optimizer's settings is None before and True after."""
    return kind in ("NoneType", "bool", "int", "float", "str")


def _misfit(a: Mapping[str, str], b: Mapping[str, str]) -> str:
    """Why what has keys ``b`` cannot be loaded in place of what has keys ``a``, or the other way
    round.
    """
    gone = [k for k in a if k not in b]
    if gone:
        return f"lacks {shown(gone)}"
    parts = {k.split("/")[0] for k in a}
    inside = {k for k in b if "/" not in k and b[k] != "dict" or k.split("/")[0] in parts}
    new = [k for k in b if k not in a and k in inside and not (_option(b[k]) and GROUP.search(k))]
    if new:
        return f"has {shown(new)} besides"
    other = [k for k in a if a[k] != b[k] and not (_option(a[k]) and _option(b[k]))]
    return f"has {shown([f'{k}: {b[k]}, was {a[k]}' for k in other])}" if other else ""


def checkpoints(ev: Evidence) -> Check | None:
    """The same files with the same keys, types and shapes, so that either script loads what the
    other saved.

    A further part beside those that were there (the state of a GradScaler) does no harm: nobody
    asks for it.
    """
    lists = [o.record.checkpoints for o in ev.originals if o.records]
    masked = len({frozenset(_named(c, False)) for c in lists}) > 1
    known = [_named(c, masked) for c in lists]
    a, b = known[0], _named(ev.b.record.checkpoints, masked)
    if not a and not b:
        return None
    steady = [path for path in a if all(path in k for k in known)]
    missing = [p for p in steady if p not in b]
    if missing:
        kept = ev.effect == "exact" or not any(
            len(_named(o.record.checkpoints, masked)) != len(a) for o in ev.others
        )
        return answer(False if kept else None, f"not saved: {shown(missing)}")
    for path in steady:
        if a[path].loads and not b[path].loads:
            text = f"{path} does not load: {b[path].error}"
            return differs(text)
        misfit = _misfit(a[path].keys, b[path].keys)
        if misfit and not any(_misfit(a[path].keys, k[path].keys) for k in known[1:]):
            return differs(f"{path} {misfit}")
    text = f"{count(len(steady), 'file')} with the same keys, types and shapes: either script loads the other's"
    return holds(text)
