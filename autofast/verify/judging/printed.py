"""What the script prints: the same kinds of lines, and in them the same numbers, as far as the
original reproduces them itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import itemgetter

from autofast.model.several import not_none
from autofast.report.style import count, short
from autofast.verify.estimates import fmean, gap, rounded_alike, spread
from autofast.verify.evidence import alike, course
from autofast.verify.evidence.figures import TIME, Quantity, kinds, printed, unit
from autofast.verify.evidence.gathered import Evidence, curve
from autofast.verify.evidence.outputs import said, written
from autofast.verify.evidence.record import Run
from autofast.verify.judging.exact import equal, reproducible
from autofast.verify.judging.seeded import LEAST
from autofast.verify.result import Check, Sameness, answer, differs, holds, untold

RARE = 4
NAME = "printed numbers"


def text_of(ev: Evidence) -> Check | None:
    """Every kind of line that all runs of the original print is printed, under exact rewrites
    equally often.

    Words that a model makes change with the last digits: a line without numbers for which others
    are printed is no line that was left out.
    """
    if not _lines(ev.a).strip() and not _lines(ev.b).strip():
        return None
    kept = set(ev.a.files).intersection(*(o.files for o in ev.originals))
    gone = [file for file in ev.a.files if file in kept and file not in ev.b.files]
    if gone:
        return replace(differs(f"not written any more: {gone[0]}"), verdict=Sameness.BROKEN)
    pairs = course.pairs(ev)
    rounded = not_none((ev.double, ev.perturbed))
    more = () if ev.effect == "exact" else (*ev.others, *rounded)
    counts = [kinds(_lines(o)) for o in (*ev.originals, *more)]
    common = set(counts[0]).intersection(*counts)
    steady = [kind for kind in counts[0] if kind in common and not TIME.search(kind)]
    for _, b in pairs:
        after = kinds(_lines(b))
        for kind in steady:
            fixed = {c[kind] for c in counts}
            if kind not in after or (
                len(fixed) == 1 and ev.effect == "exact" and after[kind] not in fixed
            ):
                times = f" ({after.get(kind)} times, {counts[0][kind]} times by the original)"
                often = times if kind in after else ""
                # A recipe may take fewer steps, and then print less often; but not what it would
                # still have to print twice.
                due = min(fixed) * min(1.0, b.steps_made / max(1, ev.a.steps_made))
                loose = ev.effect == "unknown" or ev.effect == "recipe" and due < 2
                if (
                    ev.effect != "exact"
                    and kind not in after
                    and "#" not in kind
                    and any(other not in c for c in counts for other in after)
                ):
                    text = f"other words are printed: no line {short(kind, 80)!r}"
                    return untold(text)
                text = f"not printed as before: {short(kind, 80)!r}{often}"
                return answer(None if loose else False, text)
    text = f"{count(len(steady), 'kind')} of lines, all printed"
    return holds(text) if steady else None


def _is_same(ev: Evidence) -> bool:
    """Whether training is the same to the bit: then so is what is printed, whatever the rewrite was
    allowed to change.
    """
    return reproducible(ev) and (ev.effect == "exact" or equal(ev.a, ev.b))


def numbers(ev: Evidence) -> Check | None:
    """Exact: every number that two runs of the original both print is printed, digit by digit."""
    if not _is_same(ev):
        return None
    known = [printed(said(o)) for o in ev.originals]
    b = printed(said(ev.b))
    same, near = 0, 0
    for quantity, values in known[0].items():
        for i, value in enumerate(values):
            if len(known) < 2 or any(
                i >= len(k.get(quantity, ())) or k[quantity][i] != value for k in known[1:]
            ):
                continue
            other = b.get(quantity, [])
            if i < len(other) and other[i] != value:
                close = ev.effect != "exact" and _near(value, other[i])
                if not close or not _rarely(ev, quantity):
                    text = f"{other[i]} instead of {value} in {short(quantity[0], 70)!r}"
                    return differs(text)
                near += 1
            same += i < len(other)
    for one, two in ev.pairs:
        if one.seed and (text := _otherwise(ev, one, two)):
            return differs(f"{text} (seed {one.seed})")
    if near:
        # Training is the same to the bit; an evaluation in other batches is summed in another
        # order.
        text = f"{count(near, 'number')} equal up to rounding, {same} of all digit by digit"
        return untold(text)
    text = f"{count(same, 'number')} equal digit by digit"
    return replace(holds(text), identical=True) if same else None


def _otherwise(ev: Evidence, a: Run, b: Run) -> str:
    """The first number that differs by more than rounding, under another seed under which the
    training is the same to the bit.
    """
    if not equal(a, b):
        return ""
    measured, after = _measured(ev), printed(said(b))
    for quantity, values in printed(said(a)).items():
        for x, y in zip(
            values, () if quantity in measured else after.get(quantity, ()), strict=False
        ):
            if x != y and not (_near(x, y) and _rarely(ev, quantity)):
                return f"{y} instead of {x} in {short(quantity[0], 70)!r}"
    return ""


def _near(x: str, y: str) -> bool:
    """By a rounding of the sum, or of the last of many digits that are printed: a sum seldom lies
    at the edge of two digits.
    """
    if rounded_alike(x, y):
        return True
    size = unit(x)
    return 0 < size == unit(y) <= 1e-3 * abs(float(x)) and gap(float(x), float(y)) < 1.5 * size


def _rarely(ev: Evidence, quantity: Quantity) -> bool:
    """What lies at the edge of two roundings is seldom met: where more than a third of a quantity's
    values are near and not alike, over all seeds, they are other numbers."""
    off = total = 0
    for a, b in ev.pairs:
        both = (printed(said(run)).get(quantity, ()) for run in (a, b))
        if equal(a, b):
            pairs = list(zip(*both, strict=False))
            total += len(pairs)
            off += sum(x != y and not rounded_alike(x, y) for x, y in pairs)
    return 3 * off <= total or total < 3


def _lines(run: Run) -> str:
    return f"{run.stdout}\n{written(run)}"


def _measured(ev: Evidence) -> set[Quantity]:
    """What differs between two runs of the original that are equal to the bit: times, rates,
    memory.
    """
    if not reproducible(ev):
        return set()
    first, *others = [printed(said(o)) for o in ev.originals]
    return {q for q, values in first.items() if any(o.get(q) != values for o in others)}


def rounded(ev: Evidence) -> Check | None:
    """In float32, from the same random numbers and data: most values of a quantity lie as near as
    those of runs that rounding has moved.

    What is printed fewer than RARE times may be a choice among a few (a threshold from a grid) that
    jumps by a rounding, though it did in none of
    those runs: it has to be far under more than three quarters of the seeds.
    """
    rulers = not_none((ev.perturbed, ev.double))
    if _is_same(ev) or alike.known_low(ev) or ev.perturbed is None or not alike.determined(ev):
        return None
    a, b = printed(said(ev.a)), printed(said(ev.b))
    others, measured, looked, waits = [printed(said(r)) for r in rulers], _measured(ev), 0, ""
    for quantity, texts in a.items():
        after = b.get(quantity, [])
        known = [o[quantity] for o in others if len(o.get(quantity, ())) == len(texts)]
        if quantity in measured or len(after) != len(texts) or len(known) < len(rulers):
            continue
        looked += 1
        moved = list(zip(*map(_values, known), strict=True))
        own = [max(gap(m, x) for m in row) for x, row in zip(_values(texts), moved, strict=True)]
        far, lost = _far(texts, after, own)
        if not _most(far) and not any(lost):
            continue
        place = (lost if any(lost) else far).index(True)
        text = f"{after[place]} instead of {texts[place]} in {short(quantity[0], 70)!r}"
        if len(texts) < RARE and not any(lost):
            again = [True, *_again(ev, quantity, max(own))]
            if len(again) < LEAST:
                waits = waits or f"{text}, printed {count(len(texts), 'time')}: seeds decide"
                continue
            if 4 * sum(again) <= 3 * len(again):
                continue
            text += f", and as far under {sum(again)} of {len(again)} seeds"
        return differs(text)
    if waits:
        return untold(waits)
    return holds(f"{looked} quantities") if looked else None


def _far(
    texts: Sequence[str], after: Sequence[str], own: Sequence[float]
) -> tuple[list[bool], list[bool]]:
    """Which values lie further than rounding carries, ``own`` being how far it carried each; which
    of them are no number any more, or were none before.
    """
    far, lost = [], []
    for x, y, moved in zip(_values(texts), _values(after), own, strict=True):
        size = 0.02 * abs(x) if math.isfinite(x) else 0.0
        far.append(gap(y, x) > max(100 * moved, 2.5 * unit(texts[0]), size))
        lost.append(far[-1] and gap(y, x) == math.inf)
    return far, lost


def _most(far: Sequence[bool]) -> bool:
    return sum(far) > len(far) / 2


def _again(ev: Evidence, quantity: Quantity, own: float) -> list[bool]:
    """Under every other seed under which the same is drawn: whether most values of a quantity are
    far.
    """
    found = []
    for a, b in ev.pairs:
        texts, after = (printed(said(run)).get(quantity, []) for run in (a, b))
        if a.seed and len(texts) == len(after) > 0 and alike.drawn_alike(a, b):
            found.append(_most(_far(texts, after, [own] * len(texts))[0]))
    return found


def _values(texts: Sequence[str]) -> list[float]:
    return [float(t) for t in texts]


STEPS = " of steps"
FORMS: dict[str, Callable[[Sequence[float]], float]] = {
    "the mean of the losses": fmean,
    "the last loss": itemgetter(-1),
    "the first loss": itemgetter(0),
    "the sum of the losses": sum,
}


def _forms(run: Run, texts: Sequence[str], slack: float) -> set[str]:
    """What each printed number may be of the losses in its part of the run, the parts being as
    long: of every backward, or of a step, where they were divided for accumulation.
    """
    found = set()
    for losses, of in ((curve(run), STEPS), (run.record.losses, "")):
        size, rest = divmod(len(losses), len(texts))
        parts = [losses[i : i + size] for i in range(0, len(losses), size or 1)]
        for form, make in FORMS.items() if size and not rest else ():
            made = zip(texts, map(make, parts), strict=True)
            if all(gap(float(t), m) <= 0.51 * unit(t) + slack * abs(m) for t, m in made):
                found.add(form + of)
    return found


def meaning(ev: Evidence) -> Check | None:
    """A printed number that is, in every run of the original, one and the same thing made of the
    losses is still that: this is how "the loss of the last batch is logged in place of the mean"
    shows without any statistics. What is always the same is no loss, nor what has no digits.
    """
    found: list[str] = []
    runs = ((*ev.originals, *ev.others), course.arms(ev)[1])
    known = [[(r, printed(said(r))) for r in some if r.records] for some in runs]
    shown = [p for some in known for _, p in some]
    for quantity in shown[0] if all(known) else ():
        texts = [p.get(quantity, []) for p in shown]
        if not all(texts) or len({t for some in texts for t in some}) == 1 or min(map(_digits, texts)) < 1:  # fmt: skip
            continue
        one, two = (
            set.intersection(*(_forms(r, p[quantity], slack) for r, p in some))
            for some, slack in zip(known, (1e-6, 5e-3), strict=True)
        )
        # A recipe may cut steps into other parts, and those into unequal ones.
        steps, kept = {form for form in one if form.endswith(STEPS)}, ev.effect != "recipe"
        one = steps or (one if kept else steps)
        if len(one) == 1 and (two or kept):
            if not one <= two:
                now = f"; now {min(two)}" if two else ", and no longer does"
                text = f"{short(quantity[0], 60)!r} shows {min(one)} in the original{now}"
                return differs(text)
            found += one
    return holds(f"still {', '.join(sorted(set(found)))}") if found else None


def _digits(texts: Sequence[str]) -> float:
    """How many significant digits these numbers have together: so much they tell of what they
    are.
    """
    sizes = [abs(float(t)) / unit(t) for t in texts if unit(t)]
    return sum(math.log10(size) for size in sizes if 1 < size < math.inf)


def levels(ev: Evidence) -> Check | None:
    """Over several seeds, every printed quantity has the level and the scatter that it has in the
    original.

    Level: the mean difference is beyond 3 seed standard deviations, 4 standard errors and 1 %.
    Scatter: standard deviation over seeds more than 4 times as large or as small, whichever one
    seed is left out (one training may go astray), where there are three values a run at least.
    Constants stay what they are, numbers stay numbers.
    """
    if len(ev.pairs) < 4:
        return None
    a_all, b_all = ([printed(said(run)) for run in some] for some in course.arms(ev))
    looked = 0
    measured = _measured(ev)
    for quantity in a_all[0]:
        if quantity in measured or any(quantity not in p for p in (*a_all, *b_all)):
            continue
        text = _quantity(
            [_values(p[quantity]) for p in a_all], [_values(p[quantity]) for p in b_all]
        )
        looked += 1
        if text:
            return differs(f"{short(quantity[0], 60)!r}: {text}")
    return holds(f"{looked} quantities within the scatter of seeds") if looked else None


def _wide(columns: list[list[float]], out: int) -> float:
    """How far the values of a place scatter over seeds, but for that one."""
    return math.sqrt(fmean(spread([*some[:out], *some[out + 1 :]]) ** 2 for some in columns))


def _quantity(a: list[list[float]], b: list[list[float]]) -> str:
    count, n = min(map(len, (*a, *b))), len(a)
    columns = [([run[i] for run in a], [run[i] for run in b]) for i in range(count)]
    odd = [(set(map(math.isfinite, x)), set(map(math.isfinite, y))) for x, y in columns]
    # Where it follows from the place whether it is a number, in every run of the original.
    if all(len(x) == 1 for x, _ in odd) and any(x != y for x, y in odd):
        before, after = odd[next(i for i, (x, y) in enumerate(odd) if x != y)]
        return f"{'no number' if False in after else 'a number'}; in the original {'always' if True in before else 'never'} one"
    columns = [(x, y) for x, y in columns if all(map(math.isfinite, (*x, *y)))]
    if not columns:
        return ""
    for x, y in columns:
        if len(set(x)) == 1 == len(set(y)) and x[0] != y[0] and x[0].is_integer():
            return f"{y[0]:g} under every seed, {x[0]:g} in the original"
    means = [[fmean(c[k][s] for c in columns) for s in range(n)] for k in (0, 1)]
    deltas = [y - x for x, y in zip(*means, strict=True)]
    shift, wide = fmean(deltas), max(spread(means[0]), spread(means[1]))
    if wide > 0 and abs(shift) > max(
        3 * wide, 4 * spread(deltas) / math.sqrt(n), 0.01 * abs(fmean(means[0]))
    ):
        return f"{fmean(means[1]):.4g} on average, {fmean(means[0]):.4g} ± {spread(means[0]):.2g} in the original"
    if len(columns) >= 3:
        rows = [[_wide([c[k] for c in columns], out) for out in range(n)] for k in (0, 1)]
        (low, one), (least, two) = ((min(row), max(row)) for row in rows)
        if 0 < 4 * one < least or 0 < 4 * two < low:
            return f"scatters by {two:.2g} over seeds, by {one:.2g} in the original"
    return ""
