"""What is made of the weights, behind other draws: evaluations, saves, averages, when it stops, and
what losses and gradients are on average.

Both scripts are run with weights that begin the same and then move by numbers of the step alone,
whatever is drawn, given and lost (``Detail.driven``). What a training makes of its weights is then
the same in both; what depends on draws, another such run of the original shows, which draws all but
in evaluations otherwise and has its parameters moved by one rounding. Asked under two seeds.

As the weights of a step are the same in both, its losses and gradients differ by what is drawn
alone, and so, over many steps, not on average. Chance is what stretches of the run scatter by.
Where the other run of the original is off for good too (rows that are drawn once before the first
step), nothing is said.
"""

from __future__ import annotations

import math
from dataclasses import replace

from autofast.model.several import all_known, grouped, surely
from autofast.report.style import short
from autofast.verify.estimates import fmean, gap, spread
from autofast.verify.evidence import alike
from autofast.verify.evidence.figures import printed
from autofast.verify.evidence.gathered import ORIGINAL, SINGLE_STEP, Evidence, Wish
from autofast.verify.evidence.outputs import said
from autofast.verify.evidence.record import FULL, Detail, Evaluation, Run
from autofast.verify.judging import rounding
from autofast.verify.judging.tensors import moved_by
from autofast.verify.result import Check, answer

NAME = "what is made of the weights"
SEEDS = 2
FEW = 3  # values of a printed number
STRETCHES = 10
OFF = 6.0  # standard errors, under either seed: one in ten thousand, twice
SLIGHT = 1e-3  # of the mean: no less is held against a script
DRIVEN = replace(FULL, common=True, driven=1)
OTHERWISE = replace(DRIVEN, driven=2, perturb=SINGLE_STEP)


def _wanted(ev: Evidence) -> list[tuple[str, int, Detail]]:
    kinds = ((ORIGINAL, DRIVEN), (ORIGINAL, OTHERWISE), (ev.arm, DRIVEN))
    return [(arm, seed, how) for seed in range(min(SEEDS, ev.seeds)) for arm, how in kinds]


def wishes(ev: Evidence) -> list[Wish]:
    """Nothing where both compute in fewer bits."""
    made = {(run.arm, run.seed, run.detail) for run in ev.driven}
    some = [] if alike.known_low(ev) else [one for one in _wanted(ev) if one not in made]
    return [Wish(*one, "weights that move by themselves") for one in some]


def check(ev: Evidence) -> Check | None:
    groups = _groups(ev)
    if not groups:
        return None
    both = [_off(*group) for group in groups]
    off = [key for key in both[0] if all(key in some for some in both)]
    return answer(not off, both[0][off[0]] if off else "the same in both")


def evaluate_alike(ev: Evidence) -> bool:
    """Under the same weights the models give the same in evaluations, and all that is printed is
    the same: what one of the two alone draws there has no part in it."""
    groups = _groups(ev)
    return bool(groups) and all(_same_results(*g) and not _off(*g, strictly=True) for g in groups)


def _groups(ev: Evidence) -> list[tuple[Run, Run, Run]]:
    """By seed: the original, the same drawn otherwise, and the other script."""
    made = {(run.arm, run.seed, run.detail): run for run in ev.driven if run.ok}
    known = all_known(map(made.get, _wanted(ev))) or []
    groups = list(zip(known[::3], known[1::3], known[2::3], strict=True))
    return groups if all(_comparable(a, b) for a, _, b in groups) else []


def _same_results(a: Run, other: Run, b: Run) -> bool:
    """Of the models' evaluations; not of those whose data depend on what training draws."""
    rows = [run.record.evaluations for run in (a, other, b)]
    if len({tuple((e.model, e.step, e.calls, e.samples) for e in some) for some in rows}) > 1:
        return False
    given = [(x, y, z) for x, y, z in zip(*rows, strict=True) if _same_data(x, y)]
    alike = (_same_data(x, z) and _near(x.result, y.result, z.result) for x, y, z in given)
    return surely(alike)


def _same_data(one: Evaluation, two: Evaluation) -> bool:
    sums = two.sums
    return all(gap(x, sums.get(name, math.nan)) <= SLIGHT * abs(x) for name, x in one.sums.items())


def _near(before: float, moved: float, after: float) -> bool:
    own = rounding.FAR * gap(before, moved)
    return gap(before, after) <= max(own, rounding.TINY * abs(before))


def _off(a: Run, other: Run, b: Run, strictly: bool = False) -> dict[str, str]:
    """By what it is of; ``strictly``: of what is printed, every number counts."""
    found = {}
    steps, *rest = (run.steps_made for run in (a, other, b))
    if rest[0] == steps != rest[1]:
        found["steps"] = f"{rest[1]} optimizer steps are made, {steps} in the original"
    for quantity, texts in printed(said(a)).items():
        values = [[float(t) for t in printed(said(run)).get(quantity, ())] for run in (a, other, b)]
        if len(texts) < (1 if strictly else FEW) or len({*map(len, values)}) > 1:
            continue
        before, moved, after = values
        own = rounding.FAR * max(map(gap, before, moved))
        far = [
            gap(x, y) > max(own, rounding.TINY * abs(x)) for x, y in zip(before, after, strict=True)
        ]
        if sum(far) >= (1 if strictly else max(2, len(far) / 4)):
            place = far.index(True)
            text = f"{after[place]:g} instead of {texts[place]} in {short(quantity[0], 70)!r}"
            found[f"{quantity}"] = text
    rows = [_by_step(run) for run in (a, other, b)]
    for what, before in rows[0].items():
        moved, after = (some.get(what, []) for some in rows[1:])
        off = _errors(before, after)
        if abs(off) > OFF and abs(_errors(before, moved)) < OFF / 2:
            text = (
                f"{what[1]} is {fmean(after):.4g} on average, {fmean(before):.4g} in the original"
            )
            found[f"{what} {off > 0}"] = f"{text}, {abs(off):.0f} standard errors"
    saves = [{one.path: one.tensors for one in run.record.saves} for run in (a, other, b)]
    for path, tensors in saves[0].items():
        for key, one in tensors.items():
            here = [some.get(path, {}).get(key) for some in saves[1:]]
            if one.sketch and None not in here:
                near, there = (moved_by(one, x) for x in here if x is not None)
                if there > max(rounding.FAR * near, rounding.SEEN):
                    found[f"{path} {key}"] = (
                        f"{path}: {key} is {there:.2g} away from the original's"
                    )
    return found


def _by_step(run: Run) -> dict[tuple[int, str], list[float]]:
    """Loss and gradients, before they are clipped, of every step, by optimizer."""
    return grouped(
        ((step.optimizer, name), value)
        for step in run.record.steps
        for name, value in (
            ("the loss", sum(step.losses)),
            ("the gradient norm", step.left_norm or step.grad_norm),
        )
        if value
    )


def _errors(before: list[float], after: list[float]) -> float:
    """How many standard errors the mean is off; 0 where that cannot be told."""
    size = len(before) // STRETCHES
    if len(before) != len(after) or size < FEW or not all(map(math.isfinite, (*before, *after))):
        return 0.0
    far = [y - x for x, y in zip(before, after, strict=True)]
    parts = [fmean(far[i : i + size]) for i in range(0, size * STRETCHES, size)]
    least = SLIGHT * abs(fmean(before)) / OFF
    error = max(spread(parts) / math.sqrt(STRETCHES), least)
    return fmean(parts) / error if error else 0.0


def _comparable(a: Run, b: Run) -> bool:
    """They begin with the same weights, generators of their own have drawn the same by then, and
    in evaluations the same is drawn, or by one of the two alone."""
    own = (run.record.drawn.get("sizes", {}).get("own") for run in (a, b))
    both = zip(a.record.steps, b.record.steps, strict=False)
    drawn = ({one.random.split()[-1] for one in pair if one.random} for pair in both)
    alike_ = all(len(some) < 2 or "0" in some for some in drawn)
    return alike_ and len({*own}) < 2 and rounding.equal_start(a, b)
