"""What the models draw within their calls, and what they are given in evaluation: both hide in the
scatter of seeds.

In training the numbers are counted that are drawn at a time, within models and beside them. Draws
of one size that are made half as often or less, with less than a quarter of these numbers in their
place, are lost, or shared by samples or steps.

Where a model draws in evaluation in one of the two scripts alone, evaluations are made differently,
whatever they print: unless the other draws between the calls, and the place has changed alone.
Where every evaluation gives a model the same data in the original, as a validation set does, so it
does in the other script.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from autofast.verify.estimates import gap
from autofast.verify.evidence import alike
from autofast.verify.evidence.gathered import Evidence
from autofast.verify.evidence.record import Evaluation, Run
from autofast.verify.judging import rounding
from autofast.verify.judging.exact import equal
from autofast.verify.result import Check, unclear

NAME = "random numbers and evaluation"
AGAIN = 1e-6  # sums of the same data in other batches
LEAST = 3  # evaluations
OFTEN = 6  # draws of one size
# What draws unseen: generators of a script's own, and code that no longer runs as Python.
UNSEEN = ("default_rng", "RandomState", "random.Random(", "graph", "jit.", "vmap", "compile(")


def check(ev: Evidence) -> Check | None:
    """Of each model that both have; nothing is said where ``torch.compile`` is used, as compiled
    code draws by itself.
    """
    if any(run.record.moments.compiling for run in (ev.a, ev.b)):
        return None
    lost = None if _of_no_effect(ev) else _sizes(ev)
    if lost is not None:
        return lost
    for number in (evaluated := sorted(_models(ev.a) & _models(ev.b))):
        other = _evaluated(ev, number) or _data(ev, number)
        if other is not None:
            return other
    found = len({*evaluated, *(int(m) for m in ev.a.record.drawn if m.isdigit())})
    return Check(NAME, True, f"as in the original, of {found} models") if found else None


def _of_no_effect(ev: Evidence) -> bool:
    """Whatever is drawn, only rounding parts the two; as long as that is not known, their first
    steps: an order that is drawn and undone."""
    if equal(ev.a, ev.b) or ev.perturbed is not None:
        return equal(ev.a, ev.b) or rounding.coincides(ev)
    most = rounding.tolerance_of(ev)
    first = [rounding.first_differences(a, b, 1) for a, b in ev.pairs]
    return all(loss <= most.loss and gradient <= most.gradient for loss, gradient, _ in first)


def _sizes(ev: Evidence) -> Check | None:
    """In the first steps, under every seed; a few less, where no seed changes how many."""
    counts = [[pair[k].record.drawn.get("sizes", {}) for pair in ev.pairs] for k in (0, 1)]
    one, two = (
        {k: n for k, n in some[0].items() if {s.get(k) for s in some} == {n}} for some in counts
    )
    fewer = {k for k, n in one.items() if two.get(k, n) < n and len(ev.pairs) > 1}
    found = [_less(a, b, fewer) for a, b in ev.pairs]
    if not all(found):
        return None
    size, times, lost, gained = next(one for one in found if one)
    text = f"{times} draws of {size} numbers less in the first steps, {gained:.0f} numbers in place of {lost}"
    texts = ["".join((r.script[1], *(t for _, t in r.changed.values()))) for r in (ev.a, ev.b)]
    if any(texts[1].count(word) > texts[0].count(word) for word in UNSEEN):
        return unclear(NAME, f"{text}, unless in a generator of its own, or a graph")
    return Check(NAME, False, f"{text}: lost, or one for several samples or steps")


def _less(a: Run, b: Run, steady: set[str]) -> tuple[int, int, int, float] | None:
    """The largest size of which draws are missing, how many, all numbers that are missing, and
    those that are drawn in their place."""
    one, two = (run.record.drawn.get("sizes", {}) for run in (a, b))
    workers = [{p.workers for p in run.record.passes if p.training} for run in (a, b)]
    if not one or not two or workers[0] != workers[1]:
        return None
    fewer: dict[int, int] = {}
    gained = float(max(0, two["before"] - one["before"]))
    for key in {*one, *two} - {"before", "sequence"}:
        kind, size = key.split()
        missing = one.get(key, 0) - two.get(key, 0)
        plainly = one.get(key, 0) >= OFTEN and (2 * missing >= one[key] or key in steady)
        if kind == "choices" and missing < 0:
            return None
        if kind == "numbers" and (missing < 0 or plainly):
            fewer[int(size)] = missing
    gained -= sum(size * n for size, n in fewer.items() if n < 0)
    lost = {size: n for size, n in fewer.items() if n > 0}
    if not lost or sum(b.record.masks or ()) > sum(a.record.masks or ()):
        return None
    total = sum(size * n for size, n in lost.items())
    return (max(lost), lost[max(lost)], total, gained) if 4 * gained < total else None


def _models(run: Run) -> set[int]:
    return {one.model for one in run.record.evaluations}


def _of(run: Run, model: int) -> list[Evaluation]:
    return [one for one in run.record.evaluations if one.model == model]


def _drawn(run: Run, model: int) -> tuple[bool, bool]:
    """In its calls; between calls of whatever model."""
    inside = any(one.drew for one in _of(run, model))
    return inside, any(one.between for one in run.record.evaluations)


def _evaluated(ev: Evidence, model: int) -> Check | None:
    """What is drawn may be for training alone: the first evaluation before which both trained alike
    tells what it does.
    """
    known = {_drawn(run, model) for run in ev.originals if run.ok}
    if len(known) != 1:
        return None
    (before, beside), (after, now_beside) = known.pop(), _drawn(ev.b, model)
    moved = now_beside and not beside if before else beside and not now_beside
    if before == after or moved:
        return None
    drawn = "random numbers are" if after else "no random numbers are"
    text = f"{drawn} drawn in evaluation, in calls of model {model}; in the original {'they' if before else 'none'} are"
    far = _far(ev, model)
    if far is None:
        text += ", and as other numbers were drawn before, it is not known what comes of it: that change alone would tell"
        return unclear(NAME, text)
    return Check(NAME, False, text) if far else None


def _far(ev: Evidence, model: int) -> bool | None:
    """Whether the first evaluation gave something else than rounding makes; None: it was of other
    weights.
    """
    a, b = _of(ev.a, model)[0], _of(ev.b, model)[0]
    if a.step != b.step or a.samples != b.samples or alike.steps(ev) < a.step:
        return None
    own = 0.0
    if trained_otherwise := _losses(ev.a, a.step) != _losses(ev.b, a.step):
        moved = _of(ev.perturbed, model)[:1] if ev.perturbed else []
        if not moved:
            return None
        own = gap(moved[0].result, a.result)
    size = math.sqrt(max(a.squares, b.squares))
    least = 1e-3 if trained_otherwise else 1e-6
    return gap(a.result, b.result) > max(100 * own, least * size)


def _losses(run: Run, steps: int) -> list[tuple[float, ...]]:
    return [step.losses for step in run.record.steps[:steps]]


def _data(ev: Evidence, model: int) -> Check | None:
    """The original's evaluations get the same, in all its runs; the other's do not."""
    runs = [_of(run, model) for run in (*ev.originals, *ev.others) if run.ok]
    for name in sorted(runs[0][0].sums):
        if all(_same(some, name) for some in runs) and _same(_of(ev.b, model), name) is False:
            text = f"in evaluation input {name} of model {model} is another every time; in the original it is the same"
            return Check(NAME, False, text)
    return None


def _same(some: Sequence[Evaluation], name: str) -> bool | None:
    """By the mean over samples, as a set may be gone through several times; None: too few to
    say.
    """
    means = [one.sums[name] / one.samples for one in some if name in one.sums and one.samples]
    if len(means) < LEAST or len(means) < len(some):
        return None
    return max(means) - min(means) <= AGAIN * max(map(abs, means))
