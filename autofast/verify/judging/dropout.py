"""Dropout, by whatever modules and functions it is drawn: which are called, how large its masks are
and what share they drop."""

from __future__ import annotations

from collections import Counter

from autofast.verify.estimates import fmean
from autofast.verify.evidence import alike
from autofast.verify.evidence.gathered import Evidence
from autofast.verify.evidence.numbered import plain
from autofast.verify.evidence.record import Record, Run

RATE = 0.02  # by how much of the original's a share that is dropped may be another
MASKED = 2  # steps whose masks are kept
LEAST = 4  # seeds: layers that are left out at random leave out their masks


def wrong(ev: Evidence) -> str:
    """Empty: nothing."""
    a, b = ev.records
    lost = {plain(k) for k in a.dropouts} - {plain(k) for k in b.dropouts}
    lost = {k for k in lost if all(k in map(plain, o.record.dropouts) for o in ev.originals)}
    drawn = _masks(ev)
    if lost and drawn is not True:
        return f"{min(lost)} is no longer called in training"
    if isinstance(drawn, str):
        return drawn
    known = drawn is not None and len(ev.pairs) >= LEAST
    return (known and (_rates(ev) or _left_out(ev))) or ""


def _masks(ev: Evidence) -> str | bool | None:
    """What is wrong with the masks of dropout; True: they are of the original's sizes. None: not
    known.

    Sizes are sorted, as other orders draw the same. One that is half as large or smaller is shared
    by samples or steps. More and larger ones are
    no fault: activations that are computed again draw again."""
    a, b = ev.records
    again = [o.record.masks for o in ev.originals[1:] if o.records]
    if a.masks is None or b.masks is None or any(a.masks != other for other in again):
        return None
    if any(record.moments.compiling for record in (a, b)) or not _parts_alike(a, b):
        return None  # compiled code draws by itself; other parts of a batch at a time
    evaluated = [any(s.evaluating is not None for s in r.steps) for r in (a, b)]
    if all(evaluated) and bool(a.idle_masks) != bool(b.idle_masks):
        words = "masks of dropout are" if b.idle_masks else "no mask of dropout is"
        other = "none is" if b.idle_masks else "some are"
        return f"{words} drawn without gradients, as in an evaluation; in the original {other}"
    found = _sizes(ev.a, ev.b)
    if isinstance(found, str) and _by_batch(ev):
        every = [_sizes(*pair) for pair in ev.pairs]
        return found if len(every) >= LEAST and all(isinstance(x, str) for x in every) else None
    return found


def _by_batch(ev: Evidence) -> bool:
    """The sizes hang on what a batch holds (bags, graphs), and that is something else in the two;
    then all seeds have to tell."""
    masks, half = ev.a.record.masks or (), len(ev.a.record.masks or ()) // MASKED
    sizes = {tuple(sorted(pair[0].record.masks or ())) for pair in ev.pairs}
    varies = len(sizes) > 1 or sorted(masks[:half]) != sorted(masks[-half:])
    other = alike.other_data(ev) is not None or not alike.drawn_alike(ev.a, ev.b, MASKED)
    return varies and other


def _sizes(before: Run, after: Run) -> str | bool:
    """See ``_masks``, of one pair."""
    a, b = before.record, after.record
    if a.masks is None or b.masks is None:
        return False
    one, two = sum(a.masks), sum(b.masks)
    # A mask that the script makes of numbers by itself is one, too.
    instead = _beside(after) - _beside(before)
    if two and not one and 2 * instead > -two:
        return (
            f"masks of dropout have {two} entries in the first steps; in the original none is drawn"
        )
    if one and 2 * two <= one:
        if two + instead >= (1 - RATE) * one:
            return True
        return f"the masks of dropout have {two} entries in the first steps, {one} in the original: lost, or shared by samples or steps"
    if len(a.masks) == len(b.masks):
        both = zip(sorted(a.masks), sorted(b.masks), strict=True)
        less = next(((x, y) for x, y in both if 2 * y <= x), None)
        if less is not None:
            return f"a mask of dropout has {less[1]} entries, {less[0]} in the original: one for several samples or steps"
        return sorted(a.masks) == sorted(b.masks) and bool(a.masks)
    return bool(a.masks) and _entries(a) == _entries(b)  # several are drawn at once


def _entries(record: Record) -> Counter[float]:
    """By the share that is dropped."""
    found: Counter[float] = Counter()
    for size, rate in zip(record.masks or (), record.mask_rates, strict=False):
        found[round(rate, 6)] += size
    return found


def _rates(ev: Evidence) -> str:
    """As many masks are drawn (unless that hangs on the seed, as in a line search), and the mean
    share of their entries that is dropped lies elsewhere under every seed."""
    many = [{len(pair[k].record.masks or ()) for pair in ev.pairs} for k in (0, 1)]
    if many[0] != many[1] and len(many[0]) == 1:
        return ""
    one, two = ([_mean_rate(pair[k].record) for pair in ev.pairs] for k in (0, 1))
    apart = min(two) > (1 + RATE) * max(one) or max(two) < (1 - RATE) * min(one)
    if not min(*one, *two) or not apart or _other_places(ev):
        return ""
    return f"dropout drops {100 * fmean(two):.3g} % of the entries of its masks in the first steps, {100 * fmean(one):.3g} % in the original"


def _mean_rate(record: Record) -> float:
    entries = _entries(record)
    return sum(n * p for p, n in entries.items()) / max(1, sum(entries.values()))


def _other_places(ev: Evidence) -> bool:
    """Each rate of the original is there, on more or fewer entries: places that were put together,
    or batches of other sizes."""
    one, two = ({*run.record.mask_rates} for run in ev.both)
    sizes = [tuple(sorted(run.record.masks or ()) for run in pair) for pair in ev.pairs]
    return one == two and any(x != y for x, y in sizes)


def _left_out(ev: Evidence) -> str:
    """Under every seed all masks but some are drawn, and nothing else in their place."""
    before, after = ([_drawn(pair[k]) for pair in ev.pairs] for k in (0, 1))
    one, two = before[0], after[0]
    steady = all(x == one for x in before) and all(x == two for x in after)
    if not steady or not one - two or two - one:
        return ""
    (size, rate), times = next(iter((one - two).items()))
    if any(_words(b) - _words(a) >= size for a, b in ev.pairs):
        return ""
    return f"{times} of the original's masks of {size} entries that drop {100 * rate:.3g} % no longer drawn in the first steps"


def _drawn(run: Run) -> Counter[tuple[int, float]]:
    return Counter(zip(run.record.masks or (), run.record.mask_rates, strict=False))


def _words(run: Run) -> int:
    """Numbers that are drawn beside masks of dropout."""
    sizes = [(key.split(), n) for key, n in run.record.drawn.get("whole", {}).items()]
    return sum(int(kind[1]) * n for kind, n in sizes if kind[0] != "choices")


def _beside(run: Run) -> float:
    """The same of as many steps as masks are kept of, by samples: the last batch of a pass may be a
    small one."""
    calls, steps = run.record.calls, max(1, run.steps_made)
    first = sum(c.samples for c in calls if c.step < MASKED)
    each = sum(c.samples for c in calls) / (1 + max((c.step for c in calls), default=0))
    return _words(run) * (first / each if each else MASKED) / steps


def _parts_alike(a: Record, b: Record) -> bool:
    """The models are given about as many samples at a time: graphs and sentences have different
    sizes, parts of a batch half of them at most."""
    sizes = [max((c.samples for c in record.calls), default=0) for record in (a, b)]
    return max(sizes) < 1.5 * min(sizes)
