"""The test for rewrites that only round differently.

(i) At the first step the weights are still equal, so loss and gradients may differ by rounding alone.
(ii) Later, training itself carries rounding further, some of it exponentially. How far is measured, not assumed: the distance to a run of
the original in double precision must be of the order of the original's own, or the distance to the original of the order of that of a run
whose parameters were moved by one rounding (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., sections 1.5 and 1.7:
forward error = condition x backward error; the perturbed run measures the condition of this training).
(iii) Over seeds, the loss curve stays within what seeds do anyway (``parity_seeds``).
Passed: (i) or (ii), and (iii).

Dropout in another precision or memory layout can draw another mask from the same generator state. Then the first loss differs by more than
rounding though nothing is wrong, and (i) cannot say; where the first loss agrees, the masks did, and so must the gradients.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from autofast.verify.estimates import median
from autofast.verify.evidence import Evidence, curve, taken
from autofast.verify.invariants import plain
from autofast.verify.parity_exact import apart, state_apart
from autofast.verify.record import Run
from autofast.verify.result import Check

FACTOR = 10.0
EARLY = 20  # steps in which distances are compared: later ones are chaotic in any precision
FIRST = 5  # steps over which the median update is compared


@dataclass(frozen=True)
class Tolerance:
    """Relative differences allowed at the first step. bfloat16 rounds at 2^-9 = 0.2 %, float32 at 2^-24; sums over layers add to that."""

    name: str
    loss: float
    gradient: float
    update: float


SINGLE = Tolerance("float32", 1e-4, 1e-3, 1e-2)
HALF = Tolerance("16 bits or TF32", 2e-2, 0.10, 0.15)


def _relative(x: float, y: float) -> float:
    return abs(x - y) / max(abs(x), abs(y), 1e-12) if math.isfinite(x) and math.isfinite(y) else math.inf


def equal_start(a: Run, b: Run) -> bool:
    """Both begin with the same weights (as far as they were recorded)."""
    one, two = ({plain(k): v.sha for k, v in r.record.start.items()} for r in (a, b))
    return one == two


def first_differences(a: Run, b: Run) -> tuple[float, float, float]:
    """Relative differences of the losses before the first step, of its gradient norm, and of the median update of the first steps.

    A GradScaler leaves out the first steps until it has found its scale; the weights do not change in those.
    """
    x, y = taken(a)[:FIRST], taken(b)[:FIRST]
    if not a.record.steps or not b.record.steps or not x or not y:
        return math.nan, math.nan, math.nan
    losses = [_relative(p, q) for p, q in zip(a.record.steps[0].losses, b.record.steps[0].losses, strict=False) if math.isfinite(p)]
    shifted = a.record.steps[0].skipped != b.record.steps[0].skipped
    gradients = [(p.grad_norm, q.grad_norm) for p, q in zip(x, y, strict=False)]
    updates = [
        _relative(p.update_norm, q.update_norm)
        for p, q in zip(x, y, strict=False)
        if p.update_norm is not None and q.update_norm is not None
    ]
    known = [_relative(p, q) for p, q in gradients if p is not None and q is not None]
    gradient = math.nan if not known else median(known) if shifted else known[0]
    return max(losses, default=math.nan), gradient, median(updates) if updates else math.nan


def tolerance_of(ev: Evidence, found: tuple[float, float, float]) -> Tolerance:
    """By the applied rules; where they are not known, the stricter one if all that was seen keeps it."""
    if ev.half is not None:
        return HALF if ev.half else SINGLE
    beyond = [x > most for x, most in zip(found, (SINGLE.loss, SINGLE.gradient, SINGLE.update), strict=True)]  # nan is not
    return HALF if any(beyond) else SINGLE


def first_step(ev: Evidence) -> Check:
    """(i). ``passed`` is None where random masks or other weights make it impossible to say."""
    name = "first step"
    if not equal_start(ev.a, ev.b):
        return Check(name, None, "the weights differ before the first step, so that it cannot be compared")
    loss, gradient, update = first_differences(ev.a, ev.b)
    if math.isnan(loss) and math.isnan(gradient):
        return Check(name, None, "no loss and no gradient was seen at the first step")
    known = tolerance_of(ev, (loss, gradient, update))
    words = [
        f"{what} differs by {100 * value:.2g} % (allowed {100 * most:g} %)"
        for what, value, most in (("loss", loss, known.loss), ("gradient norm", gradient, known.gradient), ("update", update, known.update))
        if not math.isnan(value)
    ]
    text = f"{'; '.join(words)}, for {known.name}"
    if loss > known.loss:
        return Check(name, None, f"{text}: more than rounding, so either random masks are drawn differently or something else is computed")
    if gradient > known.gradient or update > known.update:
        limit = 2 if known is HALF else 10  # the masks are the same: beyond that, it is no rounding
        wrong = not math.isnan(loss) and (gradient > limit * known.gradient or update > limit * known.update)
        return Check(name, False if wrong else None, text)
    return Check(name, True, text)


def distances(ev: Evidence) -> Check:
    """(ii). Over the first EARLY losses, and between the final weights."""
    name = "as far as rounding carries"
    tried = []
    measures = (("losses", lambda x, y: apart(x, y, EARLY)), ("final weights", state_apart))
    for reference, subject, other, words in (
        (ev.double, ev.a, ev.b, "from the run in double precision"),
        (ev.perturbed, ev.a, ev.b, "from the original, whose run with parameters moved by one rounding is"),
    ):
        if reference is None:
            continue
        if reference is ev.double:
            found = [(what, m(other, reference), m(subject, reference)) for what, m in measures]
            text = "; ".join(f"{what} {x:.2g} {words}, the original's {y:.2g}" for what, x, y in found)
        else:
            found = [(what, m(other, subject), m(reference, subject)) for what, m in measures]
            text = "; ".join(f"{what} {x:.2g} {words} {y:.2g} away" for what, x, y in found)
        known = [(x, y) for _, x, y in found if x > 0 or y > 0]
        if known and all(x <= FACTOR * y for x, y in known):
            return Check(name, True, f"{text} (at most {FACTOR:g} times as far)")
        tried.append(text)
    if not tried:
        return Check(name, None, "no run in double precision and none with perturbed parameters could be made")
    return Check(name, None, " | ".join(tried))


def judge(ev: Evidence) -> list[Check]:
    """(i) and (ii); the second is shown as a failure only where the first did not decide."""
    one, two = first_step(ev), distances(ev)
    return [one, two]


def settled(checks: list[Check]) -> bool:
    """(i) or (ii) holds, and neither is broken."""
    return any(c.passed for c in checks) and not any(c.passed is False for c in checks)


def usable(ev: Evidence) -> bool:
    return any(math.isfinite(x) for x in curve(ev.a))
