"""Tests over several seeds, for rewrites that draw other random numbers or change the recipe, and
for where rounding has led in the end.

**Equivalence, not absence of a difference.** That no difference is found says little with four
runs. So the question is turned round (two
one-sided tests: Schuirmann 1987, J. Pharmacokinet. Biopharm. 15, 657-680; Lakens 2017, Soc.
Psychol. Personal. Sci. 8, 355-362): the mean loss over the last third is equivalent when the whole
90 % interval of its difference lies within a margin. Seeds are paired where that lowers the
variance (``estimates.difference``).

**Margin.** The larger of the user's share of the loss and 2 seed standard deviations of the
original. Two runs of one script differ by 1.4 of those on average, so 2 is what a user sees from
seed to seed anyway; and it can be shown with few runs: unpaired, at no true difference, the test
passes in 6 of 10 with 4 seeds and 97 of 100 with 8. But never more than CAP of what the original
learned between its first tenth and its last third: otherwise a script that does not learn at all
would be equivalent in a short run. Where it is not certain that the original learned, the smaller
of the two instead.

**Norms.** A factor on the gradients (a dropped division, gradients that are not cleared) hides from
the loss under Adam, which divides it out (Kingma, Ba 2015, section 2.1). So the mean log of the
gradient norm, and of the update norm, must agree to within 5 %, or what seeds cannot tell apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autofast.model.several import grouped, not_none
from autofast.report.style import count
from autofast.verify.estimates import Difference, difference, fmean, median, spread, times
from autofast.verify.evidence import alike
from autofast.verify.evidence.alike import low
from autofast.verify.evidence.gathered import Evidence, curve, norms, taken
from autofast.verify.evidence.record import NORMS, Run
from autofast.verify.judging.coverage import truncated
from autofast.verify.result import Check, Sameness, unclear

EQUIVALENCE, LEARNS, BAND = "loss over seeds", "it learns", "loss curve within seed noise"
COURSE, LAYERS = "course of the loss over seeds", "norms of layers over seeds"
STROKES, STROKE, LEAST_STROKE = "single steps over seeds", 10.0, 1e-4
COURSE_RISK = 1e-3  # that a window of two equal scripts is off
UNSEEN = "no loss was seen (that of a backward is, and one that is printed three times)"
LEAST = 4  # pairs of seeds before anything is judged
WINDOWS = 10
LEVEL = math.log(1.05)
PART_LEVEL = math.log(1.1)  # of a group of parameters
PARTS = {
    "grad_norms": "gradients of parameters",
    "update_norms": "updates of parameters",
    "state_norms": "movements of buffers",
}
NOTHING = 1e-5  # of the largest group's gradient: about what float32 leaves of a sum that is 0
NOTHING_LOW = 2.0**-7  # about what 16 bits leave of it
CAP = 0.05  # of the loss's drop over the run: no margin is larger


def piece(values: Sequence[float], start: float, end: float) -> float:
    """Mean of the finite values between two shares of the length; at least one value; nan where
    none is finite."""
    low = min(int(start * len(values)), max(0, len(values) - 1))
    part = [v for v in values[low : max(low + 1, math.ceil(end * len(values)))] if math.isfinite(v)]
    return fmean(part) if part else math.nan


def late(run: Run) -> float:
    return piece(curve(run), 2 / 3, 1)


def drop(run: Run) -> float:
    """By how much the loss falls from the first tenth to the last third: the mean over optimizers,
    whose losses may be of several kinds (stages, folds, two nets against each other)."""
    by = grouped(
        (step.optimizer, value) for step, value in zip(run.record.steps, curve(run), strict=False)
    )
    if len(by) < 2:
        return piece(curve(run), 0, 0.1) - late(run)
    return fmean([piece(values, 0, 0.1) - piece(values, 2 / 3, 1) for values in by.values()])


def _drops(ev: Evidence) -> list[float]:
    """How far the loss of the original falls, by seed, where that is a number."""
    return [d for d in (drop(a) for a, _ in ev.pairs) if math.isfinite(d)]


def _columns(ev: Evidence, of: Callable[[Run], float]) -> tuple[list[float], list[float]]:
    """Of both scripts, by seed, where it is a number in both."""
    both = [(of(a), of(b)) for a, b in ev.pairs]
    both = [(x, y) for x, y in both if math.isfinite(x) and math.isfinite(y)]
    return [x for x, _ in both], [y for _, y in both]


@dataclass(frozen=True)
class Tost:
    """Outcome: "inside", "worse", "better", "open" (more seeds), "none" (no loss). ``more``: pairs
    still needed, estimated."""

    outcome: str
    found: Difference
    margin: float
    pairs: int
    more: int
    mean: float


def _margin(ev: Evidence, mean: float, sd: float) -> float:
    """Where the loss falls for certain: the larger of the user's share of the loss and what seeds
    do anyway, but no more than CAP of the drop. Elsewhere the smaller of those two.

    A share of a loss that crosses zero means nothing, and counts as 0: where such a loss does not
    fall for certain, nothing is close enough."""
    values = [v for a, _ in ev.pairs for v in curve(a) if math.isfinite(v)]
    crosses = bool(values) and min(values) < 0 < max(values)
    learned = _drops(ev)
    falls = len(learned) > 1 and fmean(learned) > 3 * spread(learned) / math.sqrt(len(learned))
    share = 0.0 if crosses else ev.margin * abs(mean)
    if falls:
        return min(max(share, 2 * sd), CAP * fmean(learned))
    return min(share, 2 * sd) if share else 0.0


def margin_words(ev: Evidence) -> str:
    """The margin and what lies within it, for the first sentence of the report."""
    result = tost(ev)
    fell = _drops(ev)
    if not math.isfinite(result.margin):
        return "seed noise"
    share = 100 * result.margin / fmean(fell) if fell and fmean(fell) > 0 else 0.0
    return f"±{result.margin:.2g}" + (f", {_two_digits(share)} % of its drop" if share else "")


def tost(ev: Evidence) -> Tost:
    """Two one-sided tests: whether the mean of the last third of the loss is the same but for the
    margin.
    """
    before, after = _columns(ev, late)
    n = len(before)
    nothing = Difference(math.nan, math.inf, 0, True)
    if not n:
        waits = len(ev.pairs) < LEAST and any(map(math.isfinite, curve(ev.a)))
        more = LEAST - len(ev.pairs)
        return Tost("open" if waits else "none", nothing, math.nan, 0, more, math.nan)
    found, sd, mean = difference(before, after), spread(before), fmean(before)
    margin = _margin(ev, mean, sd)
    if n < LEAST:
        return Tost("open", found, margin, n, LEAST - n, mean)
    half, size = found.half(0.95), abs(found.value)
    if size + half <= margin:
        return Tost("inside", found, margin, n, 0, mean)
    if size - found.half(0.9995) > margin:
        return Tost("worse" if found.value > 0 else "better", found, margin, n, 0, mean)
    room = margin - size
    more = max(1, math.ceil(n * (half / room) ** 2) - n) if room > 0 else 2 * n
    return Tost("open", found, margin, n, min(more, 1000), mean)


def _two_digits(x: float, sign: str = "-") -> str:
    """Two digits, but no exponent for what is large."""
    return f"{x:{sign}.0f}" if abs(x) >= 10 else f"{x:{sign}.2g}"


def equivalence(ev: Evidence) -> tuple[Check, int]:
    """The check, and how many more pairs it needs."""
    name = EQUIVALENCE
    result = tost(ev)
    if result.outcome == "none":
        return unclear(f"{UNSEEN}, so that the two cannot be compared over seeds", name), 0
    if not result.pairs:
        return unclear(f"no pair of runs, at least {LEAST} seeds are needed", name), LEAST
    share = 100 / abs(result.mean) if result.mean else math.nan
    kind = "paired" if result.found.paired else "unpaired"
    half = result.found.half(0.95)
    around = f" ± {_two_digits(half * share)} %, 90 %" if math.isfinite(half) else ""
    text = (
        f"mean loss of the last third {result.mean + result.found.value:.5g}, {result.mean:.5g} in the original: difference "
        f"{_two_digits(result.found.value * share, '+')} %{around} ({kind}, {result.pairs} {'seed' if result.pairs == 1 else 'seeds'}), "
        f"margin ±{_two_digits(result.margin * share)} %"
    )
    if result.outcome == "inside":
        return Check(name, True, text), 0
    if result.outcome == "open":
        return unclear(f"{text}: not yet clear", name), result.more
    if result.outcome == "better":
        return Check(name, False, f"{text}: lower than seeds allow", verdict=Sameness.SUSPICIOUS), 0
    return Check(name, False, f"{text}: higher than seeds allow"), 0


def learns(ev: Evidence) -> tuple[Check | None, int]:
    """The loss falls at least half as far as in the original; and how many more pairs would tell.
    Where it is not certain that the original's falls, nothing is known: a script that learns
    nothing would look the same."""
    name = LEARNS
    before, after = _columns(ev, drop)
    n = len(before)
    if n < 3:
        return None, 0
    fell, gained = fmean(before), fmean(after)
    needed = 3 * spread(before) / math.sqrt(n)
    if len(curve(ev.a)) < 3 or fell <= needed or fell <= 0:
        more = math.ceil(n * (needed / fell) ** 2) + 1 - n if fell > 0 else 0
        by = f"{_two_digits(fell)} ± {_two_digits(needed)} (first tenth to last third, {n} seeds)"
        text = (
            f"in {len(curve(ev.a))} steps the original's loss falls by {by}, not for certain: "
            f"a script that learns nothing would look the same; {longer(ev)} would tell"
        )
        return unclear(text, name), more if more <= ev.seeds else 0
    text = f"the loss falls by {gained:.3g}, by {fell:.3g} in the original, from the first tenth to the last third"
    error = difference(before, after).half(0.995)
    return Check(name, not (gained < fell / 2 and fell - gained > error), text), 0


def longer(ev: Evidence) -> str:
    """What goes further than these runs did."""
    cut = truncated(ev) or ev.a.samples
    longer = "a longer training (arguments of the script stand behind --)"
    return "more steps (--steps N, 0 for all)" if cut else longer


def band(ev: Evidence) -> Check:
    """Where rounding has led: no further than seeds do (``course``), or 3 times as far as one
    rounding of the parameters did."""
    if len(ev.pairs) < LEAST:
        return unclear(f"{count(len(ev.pairs), 'seed')}, {LEAST} are needed", BAND)
    return course(ev, BAND) or unclear(UNSEEN, BAND)


def course(ev: Evidence, name: str = COURSE) -> Check | None:
    """How it learns, not only how far: the mean loss in WINDOWS windows must agree to within the
    user's margin, CAP of the drop, or what seeds cannot tell apart. Another initialisation or
    another first rate may be made good by the last third."""
    if ev.effect == "recipe" or len(ev.pairs) < LEAST:
        return None
    both = [(curve(a), curve(b)) for a, b in ev.pairs]
    moved = [(curve(ev.a), curve(ev.perturbed))] if ev.perturbed and name == BAND else []
    windows = min(WINDOWS, *(len(some) for pair in (*both, *moved) for some in pair))
    fell = _drops(ev)
    least = CAP * max(0.0, fmean(fell)) if fell else 0.0
    looked, off = 0, []
    for i in range(windows):
        ends = i / windows, (i + 1) / windows
        means, far = ([[piece(s, *ends) for s in pair] for pair in some] for some in (both, moved))
        if not all(math.isfinite(x) for pair in means for x in pair):
            continue
        looked += 1
        before, after = [a for a, _ in means], [b for _, b in means]
        found = difference(before, after)
        rounded = [3 * abs(y - x) for x, y in far if math.isfinite(y)]
        allowed = max(least, ev.margin * abs(fmean(before)), found.half(1 - COURSE_RISK / (2 * windows)), *rounded)  # fmt: skip
        if abs(found.value) > allowed:
            off.append(found.value)
            text = (
                f"in window {i + 1} of {windows} the loss is {fmean(after):.5g} on average, {fmean(before):.5g} in the original "
                f"(±{allowed:.2g} allowed by {len(both)} seeds)"
            )
    if off:
        lower = name == BAND and max(off) < 0
        return Check(name, False, text, verdict=Sameness.SUSPICIOUS if lower else Sameness.DIFFERENT)  # fmt: skip
    return Check(name, True, f"{windows} windows") if looked else None


def _level(run: Run, name: str) -> float:
    values = [math.log(v) for v in norms(run, name) if v is not None and v > 0 and math.isfinite(v)]
    return fmean(values) if values else math.nan


def level(ev: Evidence, name: str) -> Check | None:
    """Geometric mean of a norm over all steps, over seeds: within 5 %, or within what the seeds
    cannot tell apart (99.9 %)."""
    before, after = _columns(ev, lambda run: _level(run, name))
    if ev.effect == "recipe" or len(before) < LEAST:
        return None
    text = times(before, after, LEVEL, 1e-3)
    return Check(f"{NORMS[name]} over seeds", not text, text or "as in the original")


def _part_levels(run: Run, name: str) -> list[float]:
    """Of each group of parameters of each optimizer, the mean log of its norm."""
    found = grouped(
        ((step.optimizer, place), math.log(value))
        for step in taken(run)
        for place, value in enumerate(getattr(step, name))
        if value is not None and 0 < value < math.inf
    )
    return [fmean(found[key]) for key in sorted(found)]


def _rounding_alone(ev: Evidence) -> set[int]:
    """Groups whose gradient is below NOTHING of the largest group's, in all runs."""
    places: list[set[int]] = []
    for run in (run for pair in ev.pairs for run in pair):
        levels = _part_levels(run, "grad_norms")
        least = max(levels, default=0.0) + math.log(NOTHING_LOW if low(run) else NOTHING)
        places.append({i for i, level in enumerate(levels) if level < least})
    return set.intersection(*places) if places else set()


def parts(ev: Evidence) -> Check | None:
    """The same for groups of parameters: a part of the model whose gradient is lost or doubled need
    not show in the whole.

    Within 10 %, or what seeds cannot tell apart (99.99 %, as there are a dozen of them). A group
    whose gradient is nothing beside the others' in all runs (a bias before a normalisation) holds
    rounding, and tells nothing."""
    name = LAYERS
    if ev.effect == "recipe" or len(ev.pairs) < LEAST:
        return None
    looked, rounding = 0, _rounding_alone(ev)
    for what, words in PARTS.items():
        both = [[_part_levels(run, what) for run in pair] for pair in ev.pairs]
        sizes = {len(levels) for pair in both for levels in pair}
        if len(sizes) != 1:  # other groups, or a part that has no gradients under some seed
            continue
        for place in range(sizes.pop()):
            if what != "state_norms" and place in rounding:
                continue
            looked += 1
            one, two = ([pair[k][place] for pair in both] for k in (0, 1))
            if often := times(one, two, PART_LEVEL, 1e-4):
                return Check(name, False, f"{words}, group {place + 1}: {often}")
    return Check(name, True, f"{looked} groups of parameters") if looked > 2 else None


def strokes(ev: Evidence) -> Check | None:
    """What differs in the same steps under every seed, and hardly in others, is no rounding: that
    grows and stays, and comes in other steps under other seeds."""
    rulers = not_none((ev.double, ev.perturbed))
    if len(ev.pairs) < LEAST or not rulers or not alike.determined(ev):
        return None
    for what in ("", *NORMS):
        own = [x for run in rulers for x in _far(ev.a, run, what)]
        far = [_far(a, b, what) for a, b in ev.pairs]
        most = [STROKE * max(median(some or [0.0]), *own, LEAST_STROKE) for some in far]
        at = [{i for i, x in enumerate(some) if x > y} for some, y in zip(far, most, strict=True)]
        if both := set.intersection(*at):
            text = f"under every seed it is {far[0][min(both)]:.2g} away there, in other steps {max(own, default=0.0):.2g} by rounding"
            name = NORMS.get(what, "loss")
            return Check(STROKES, False, f"{name} of step {min(both) + 1}: {text}")
    return Check(STROKES, True, "none differs by more than in other steps under every seed")


def _far(a: Run, b: Run, what: str) -> list[float]:
    one, two = ([x or 0.0 for x in (norms(r, what) if what else curve(r))] for r in (a, b))
    least = fmean(map(abs, one)) / 10 if one else 0.0
    both = zip(one, two, strict=False)
    return [abs(x - y) / (max(abs(x), abs(y), least) or 1.0) for x, y in both]


def levels(ev: Evidence) -> list[Check]:
    found = (*(level(ev, name) for name in NORMS), parts(ev), strokes(ev))
    return [check for check in found if check]
