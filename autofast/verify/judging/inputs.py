"""What the models are given in training, call after call, whatever it comes from: data in memory
pass no DataLoader.

Looked at are those tensors that rounding does not touch (the same in the run with moved
parameters), each by one checksum for a call: whether the series repeats itself (a permutation lost,
or drawn once), whether it is the same under every seed, and how far sums over a pass scatter, which
is small where every row comes once in a pass and large where rows are drawn with replacement or
noise is shared.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Sequence
from itertools import product

from autofast.verify.estimates import fmean, spread
from autofast.verify.evidence import alike
from autofast.verify.evidence.alike import MOST_CALLS
from autofast.verify.evidence.gathered import Evidence
from autofast.verify.evidence.numbered import plain
from autofast.verify.evidence.record import Run
from autofast.verify.judging import dropout, laws, rounding
from autofast.verify.result import Check, differs, holds, unclear

MOST = 600  # calls that are looked at
CRITICAL = 6.0
AGAIN = 8  # calls, within which the same input is looked for
Key = tuple[int, str]
Series = Sequence[list[float]]
LOOKS = (
    "mean of squares",
    "share of zeros",
    "how evenly values lie over the samples",
    "how evenly values lie within a sample",
)
ODD = "it holds what is no number; in the original it does not"


def _series(run: Run, key: Key) -> list[float]:
    return _all(run, key)[:MOST]


def _all(run: Run, key: Key) -> list[float]:
    return [c.sums[key[1]] for c in run.record.calls if c.model == key[0] and key[1] in c.sums]


def _keys(ev: Evidence) -> list[Key]:
    """Of tensors that are data: equal in all runs of the original with the same seed."""
    rulers = [run for run in (*ev.originals[1:], ev.perturbed) if run is not None and run.ok]
    keys = sorted({(c.model, name) for c in ev.a.record.calls for name in c.sums})
    return [
        key
        for key in keys
        if ev.perturbed is not None
        and all(_series(run, key) == _series(ev.a, key) for run in rulers)
    ]


def _repeats(series: Sequence[float], lag: int) -> float:
    """Correlation of the series with itself ``lag`` calls later."""
    one, two = series[:-lag], series[lag:]
    a, b = fmean(one), fmean(two)
    size = math.sqrt(sum((x - a) ** 2 for x in one) * sum((y - b) ** 2 for y in two))
    return sum((x - a) * (y - b) for x, y in zip(one, two, strict=True)) / size if size else 1.0


def _repeat_beside_places(cut: Sequence[Series], lag: int) -> list[float]:
    """``_repeats`` of both, without what a place among ``lag`` calls has in every pass and under
    every seed of the original: the last, smaller batch, or two kinds of calls by turns, look alike
    in every pass."""
    usual = [fmean([x for s in cut[0] for x in s[place::lag]]) for place in range(lag)]
    size = max(abs(x) for some in cut for s in some for x in s)
    found = []
    for some in cut:
        rest = [[x - usual[i % lag] for i, x in enumerate(s)] for s in some]
        still = max(abs(x) for s in rest for x in s) < 1e-9 * size
        found.append(1.0 if still else fmean([_repeats(s, lag) for s in rest]))
    return found


def _period(before: Series, after: Series) -> str:
    """By how many calls a pass has, which may hang on the seed: the same has to be found for every
    length.
    """
    found = ""
    for length in {min(len(a), len(b)) for a, b in zip(before, after, strict=True)}:
        cut = [
            [some[k][:length] for some in zip(before, after, strict=True) if min(map(len, some)) == length]
            for k in (0, 1)
        ]  # fmt: skip
        found = _period_of(cut, length)
        if not found:
            return ""
    return found


def _plainly(apart: Sequence[Sequence[float]], pairs: int) -> bool:
    """What comes again has noise over it that is drawn anew: under every seed alone it is no
    chance, and in no run of the other script is there anything like it."""
    low, high = sorted(apart, key=fmean)
    least = max(0.4, 3 / math.sqrt(pairs))
    return len(low) >= 4 and min(high) > least and max(map(abs, low)) < min(high) - 0.1 and abs(fmean(low)) < 0.2  # fmt: skip


def _period_of(cut: Sequence[Series], length: int) -> str:
    if length < 20 or any(len(set(s)) < 5 for some in cut for s in some):
        return ""
    for lag in range(1, length - max(8, length // 4)):
        apart = [[_repeats(s, lag) for s in some] for some in cut]
        one, two = map(fmean, apart)
        limit = 0.9
        if max(one, two) <= limit and _plainly(apart, length - lag):
            limit = 0.5
        if min(one, two) >= 0.5 and max(one, two) > limit:
            one, two = _repeat_beside_places(cut, lag)
            limit = 0.75  # what is usual comes from the same series, and takes its share
        if max(one, two) > limit and min(one, two) < 0.5:
            text = f"the same comes again every {lag} calls (correlation {two:.2f}, {one:.2f} in the original)"
            return f"{text}: an order lost or drawn once" if two > one else text
    return ""


def _again(before: Series, after: Series) -> str:
    """Some calls are given just what a call shortly before was given: one draw of noise for several
    of them.
    """

    def share(some: Series, lag: int) -> float:
        return fmean([x == y for s in some for x, y in zip(s, s[lag:], strict=False)] or [0.0])

    for lag in range(1, AGAIN + 1):
        one, two = share(before, lag), share(after, lag)
        if min(one, two) < 0.05 and max(one, two) > 0.2:
            return f"{100 * two:.0f} % of the calls get what the {'one' if lag == 1 else f'{lag}th'} before got, {100 * one:.0f} % in the original"
    return ""


def _seeds(before: Series, after: Series) -> str:
    one, two = ({tuple(s) for s in some} for some in (before, after))
    if len(one) == len(before) > 1 and len(two) == 1:
        return "the same under every seed; in the original it differs from seed to seed"
    if len(one) == 1 < len(before) and len(two) > 1:
        return "it differs from seed to seed; in the original it is the same under every seed"
    return ""


def _sums(some: Sequence[Sequence[float]], block: int) -> tuple[float, int]:
    """Variance of the sums over so many calls within a run, and its degrees of freedom."""
    total, freedom = 0.0, 0
    for series in some:
        sums = [sum(series[i : i + block]) for i in range(0, len(series) - block + 1, block)]
        if len(sums) > 1:
            total += spread(sums) ** 2 * (len(sums) - 1)
            freedom += len(sums) - 1
    return (total / freedom, freedom) if freedom else (0.0, 0)


def _scatter(before: Series, after: Series) -> str:
    length = min(map(len, before))
    size = max((abs(x) for s in before for x in s), default=0.0)
    blocks = {1}
    if length >= 12:
        own = _sums(before, 1)[0]
        steady = {b: _sums(before, b)[0] / (b * own) for b in range(2, length // 3 + 1) if own}
        if steady:
            blocks.add(min(steady, key=lambda b: steady[b]))
    for block in sorted(blocks):
        (one, n), (two, m) = (_sums(some, block) for some in (before, after))
        if min(n, m) < 6:
            continue
        floor = (1e-9 * size * block) ** 2
        if max(one, two) <= floor:
            continue
        ratio = math.log(max(two, floor) / max(one, floor))
        error = math.sqrt(2 / n + 2 / m)  # of sums, which are near to normal
        ranges = [[_sums([s], block)[0] for s in some] for some in (before, after)]
        apart = max(ranges[0]) < min(ranges[1]) or min(ranges[0]) > max(ranges[1])
        if apart and abs(ratio) > max(CRITICAL * error, math.log(1.5)):
            words = "sums over a pass" if block > 1 else "batches"
            return f"{words} scatter by {math.sqrt(two):.3g}, by {math.sqrt(one):.3g} in the original: other rows, or other noise"
    return ""


def _level(before: Series, after: Series) -> str:
    """Sums over whole runs at equal seed."""
    shifts = [sum(b) / len(b) - sum(a) / len(a) for a, b in zip(before, after, strict=True)]
    wide = spread([sum(a) / len(a) for a in before])
    if len(shifts) < 4 or not wide:
        return ""
    error = max(wide, spread(shifts)) / math.sqrt(len(shifts))
    if abs(fmean(shifts)) > 2 * CRITICAL * error:
        return f"its mean is {fmean(shifts):+.3g} off, {error:.2g} is chance"
    return ""


def _look(place: int) -> Callable[[Run, Key], list[float]]:
    def of(run: Run, key: Key) -> list[float]:
        known = (c.looks.get(key[1], ()) for c in run.record.calls if c.model == key[0])
        return [looks[place] for looks in known if len(looks) > place]

    return of


def _as_often(ev: Evidence, key: Key) -> bool:
    """Else another shape, or another place of the normalisation, makes it another series, and no
    other data. Where the original's own runs are of unequal lengths, as a line search or early
    stopping makes them, the first step tells."""
    one, two = ({len(_all(pair[k], key)) for pair in ev.pairs} for k in (0, 1))
    if one == two or len(one) == 1:
        return one == two
    first = [{_in_first_step(pair[k], key) for pair in ev.pairs} for k in (0, 1)]
    return first[0] == first[1]


def _in_first_step(run: Run, key: Key) -> int:
    return sum(c.model == key[0] and key[1] in c.sums and not c.step for c in run.record.calls)


def _cut(some: list[list[list[float]]]) -> list[list[list[float]]]:
    """Series of both as far as all go, where their lengths are others."""
    one, two = ({len(s) for s in arm} for arm in some)
    return some if one == two else [[s[: min(one | two)] for s in arm] for arm in some]


VIEWS = (  # a look tells what sums do not: a scale or a mask drawn for the whole batch, or strata
    ("", _all, (_seeds, _period, _again, _scatter, _level)),
    *((f"{words}: ", _look(place), (_scatter, _level)) for place, words in enumerate(LOOKS)),
)


def given(ev: Evidence) -> Check | None:
    if alike.other_data(ev) == 0 and all(c.passed for c in rounding.judge(ev)):
        # What is cut off, or filled up, from the first step on has no part in anything.
        return holds("other values, and only rounding parts the two")
    looked = 0
    for key, (words, of, tests) in product(_keys(ev), VIEWS):
        before, after = _cut([[of(pair[k], key)[:MOST] for pair in ev.pairs] for k in (0, 1)])
        if not all(map(len, (*before, *after))) or len(set(before[0])) < 2 or not _as_often(ev, key):  # fmt: skip
            continue
        if not _finite(before):
            continue
        looked += not words
        found = (test(before, after) for test in tests)
        text = next(filter(None, found), "") if _finite(after) else ODD
        if text:
            return differs(f"input {key[1]} of model {key[0]}: {words}{text}")
    for key in {(c.model, name): None for c in ev.a.record.calls for name in c.laws}:
        text = laws.wrong(ev.pairs, key) if _as_often(ev, key) else ""
        if text:
            return differs(f"input {key[1]} of model {key[0]}: {text}: drawn by another law")
    text = f"{looked} inputs in the order and scatter of the original"
    return holds(text) if looked else None


def _finite(some: Sequence[Sequence[float]]) -> bool:
    return all(math.isfinite(x) for s in some for x in s)


def called(ev: Evidence) -> Check | None:
    """How often the models are called in a step. Other calls may compute the same: then rounding
    shows it, and nothing else does.
    """
    one, two = (len(run.record.calls) for run in ev.both)
    if (
        ev.perturbed is None
        or not one
        or not two
        or one == two
        or any(len(o.record.calls) != one for o in ev.others)
    ):
        return None
    if max(one, two) >= MOST_CALLS or all(c.passed for c in rounding.judge(ev)):
        return None
    text = (
        f"{two} in training, {one} in the original, and other numbers: neither steps nor seeds tell whether that is the same; "
        "as many calls as in the original would, or this change alone, without others beside it"
    )
    return unclear(text)


def modules(ev: Evidence) -> Check | None:
    """Settings of modules of the same kind are the same, and the modules of dropout that are
    called.
    """
    a, b = ev.records
    if not a.modules or not b.modules:
        return None
    other = {plain(k): v for k, v in b.modules.items()}
    for key, text in a.modules.items():
        now = other.get(plain(key))
        if now is not None and now.split("(")[0] == text.split("(")[0]:
            if _arguments(now) != _arguments(text):
                return differs(f"{key} is {now}, {text} in the original")
    text = dropout.wrong(ev)
    if text:
        return differs(text)
    return holds(f"{len(a.modules)} modules")


# Of `sparse` gradients the numbers tell: an optimizer that leaves rows alone may do so or not.
IMPLEMENTATION = ("inplace", "device", "dtype", "batch_first", "sparse")


def _arguments(text: str) -> tuple[list[str], dict[str | None, str]]:
    """Positional and named arguments without those of IMPLEMENTATION; what is no call of Python's
    is cut at its commas.
    """
    try:
        call = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError):
        call = None
    if isinstance(call, ast.Call):
        named = {k.arg: ast.unparse(k.value) for k in call.keywords if k.arg not in IMPLEMENTATION}
        return [ast.unparse(one) for one in call.args], named
    parts = text.partition("(")[2].rstrip(")").split(", ")
    return [part for part in parts if part.split("=")[0] not in IMPLEMENTATION], {}
