"""The test for rewrites that only round differently.

(i) At the first step the weights are still equal, so loss and gradients may differ by rounding
alone. (ii) Later, training itself carries rounding further, some of it exponentially. How far is
measured, not assumed: the distance to a run of the original in double precision must be of the
order of the original's own, or the distance to the original of the order of that of a run whose
parameters were moved by one rounding (Higham, Accuracy and Stability of Numerical Algorithms, 2nd
ed., sections 1.5 and 1.7: forward error = condition x backward error; the perturbed run measures
the condition of this training). (iii) Over seeds, the loss curve stays within what seeds do anyway
(``seeded``).

Passed: (i) or (ii), and (iii), in 16 bits. In float32 a good first step does not excuse (ii):
clipping that was left out shows in a later step. There (ii) has to hold as well wherever it can be
told; where the distance is too large for FACTOR and not plainly so, seeds decide.

Plainly too far (``departs``) is FAR times the yardstick, in losses and in final weights, while the
yardstick is *tame*: none of its runs has moved by more than TAME roundings. This asks for much,
because one perturbed run can underestimate what rounding does. Known case: StarGAN in
channels_last, where Adam turns gradients that are zero but for rounding into full steps, and
another order of summing makes them another kind of zero: the losses differ by 3e-6 at one step and
by 1 at the next, when a run perturbed by 1e-6 is 1e-2 away. But that yardstick has grown
ten-thousandfold by then: no linear law, and nothing is said. Losses *and* weights, as parameters
whose gradient is zero but for rounding (a bias before a normalisation) wander under Adam without
any effect on the loss. Perturbing at every step instead of once is not needed: a run moved once
rounds otherwise ever after, and what 16 bits add at every step beyond that is covered by FAR.
Losses are compared until the yardstick is no longer tame; final weights only where it always was.

Dropout in another precision or memory layout can draw another mask from the same generator state.
Then the first loss differs by more than rounding though nothing is wrong, and (i) cannot say; where
the first loss agrees, the masks did, and so must the gradients.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from autofast.model.several import not_none, surely
from autofast.verify.estimates import fmean, gap, median
from autofast.verify.evidence import alike, course
from autofast.verify.evidence.gathered import HALF_STEP, SINGLE_STEP, Evidence, taken
from autofast.verify.evidence.numbered import plain
from autofast.verify.evidence.record import NORMS, Run
from autofast.verify.judging.exact import apart, spans, state_apart
from autofast.verify.result import Check

FACTOR = 10.0
EARLY = 20  # steps in which distances are compared: later ones are chaotic in any precision
FAR = 100.0
FAR_LOW = 20.0  # in 16 bits, on average over all losses
# roundings; beyond, the distance of two runs does not grow in proportion to their first difference
TAME = 1000.0
SEEN = (
    1e-4  # relative distance below which nothing is held against a script, whatever the yardstick
)
TINY = 1e-5  # a rounding, of norms and losses
FIRST = 5  # steps over which the median update is compared
WORDS = {**NORMS, "update_norm": "update"}
FIRSTS = {**WORDS, "left_norm": "gradient norm"}


@dataclass(frozen=True)
class Tolerance:
    """Relative differences allowed at the first step. bfloat16 rounds at 2^-9 = 0.2 %, float32 at
    2^-24; sums over layers add to that.
    """

    name: str
    loss: float
    gradient: float
    update: float

    def of(self, name: str) -> float:
        return self.gradient if name in GRADIENTS else self.update


GRADIENTS = ("grad_norm", "left_norm")
SINGLE = Tolerance("float32", 1e-4, 1e-3, 1e-2)
HALF = Tolerance("16 bits or TF32", 2e-2, 0.10, 0.15)


def equal_start(a: Run, b: Run) -> bool:
    """Both begin with the same weights (as far as they were recorded). Buffers have gone through a
    forward by then: they are no weights.
    """
    one, two = (
        {plain(k): v.sha for k, v in r.record.start.items() if not v.buffer} for r in (a, b)
    )
    return one == two


def first_differences(a: Run, b: Run, steps: int = FIRST) -> dict[str, float]:
    """Relative differences of the losses before the first step, of its gradient norm (before and
    after clipping, the larger) and the moves of its buffers, and of the median update of the first
    ``steps``, as far as known.

    A GradScaler leaves out the first steps until it has found its scale; the weights do not change
    in those.
    """
    x, y = taken(a)[:steps], taken(b)[:steps]
    if not a.record.steps or not b.record.steps or not x or not y:
        return {}
    losses = [
        _share(p, q)
        for p, q in zip(a.record.steps[0].losses, b.record.steps[0].losses, strict=False)
        if math.isfinite(p)
    ]
    shifted = a.record.steps[0].skipped != b.record.steps[0].skipped
    found = {"loss": max(losses)} if losses else {}
    for name in NORMS:
        pairs = [(getattr(p, name), getattr(q, name)) for p, q in zip(x, y, strict=False)]
        known = [_share(p, q) for p, q in pairs if p is not None and q is not None]
        if known:
            far = median(known) if shifted or name == "update_norm" else known[0]
            what = FIRSTS[name]
            found[what] = max(far, found.get(what, 0.0))
    return found


def _share(x: float, y: float, usual: Sequence[float | None] = ()) -> float:
    """The difference as a share of the larger one, or of what is usual: a loss may cross zero in
    any step but the first.
    """
    known = [abs(u) for u in usual if u is not None and math.isfinite(u)]
    far = gap(x, y)
    size = max(abs(x), abs(y), median(known) if known else 0.0, 1e-12)
    return far / size if far < math.inf else far


def _against(far: Mapping[str, float], known: Tolerance) -> tuple[str, float]:
    """Relative differences in words (where some are too large, these), and how many times as far as
    is allowed the worst of them is.
    """
    allowed = {what: known.of(name) for some in (FIRSTS, WORDS) for name, what in some.items()}
    allowed["loss"] = known.loss
    worst = max(value / allowed[what] for what, value in far.items())
    words = "; ".join(
        f"{what} differs by {100 * value:.2g} % (allowed {100 * allowed[what]:g} %)"
        for what, value in far.items()
        if worst <= 1 or value > allowed[what]
    )
    return f"{words}, for {known.name}", worst


def parting_step(ev: Evidence) -> Check | None:
    """(i) once more, where all steps before were equal bit for bit: what acts only later (a cache
    that is filled in the first pass, the training of a second model) meets weights that are equal,
    so that no rounding has grown."""
    place = course.together(ev.a.record, ev.b.record, draws=False)
    if not 0 < place < alike.agreeing_steps(ev):
        return None
    known = tolerance_of(ev)
    x, y = ev.a.record.steps[place], ev.b.record.steps[place]
    if x.skipped or y.skipped or x.optimizer != y.optimizer:
        return None
    usual = [step for step in ev.a.record.steps if step.optimizer == x.optimizer]
    losses = [loss for step in usual for loss in step.losses]
    far = [
        _share(p, q, losses) for p, q in zip(x.losses, y.losses, strict=False) if math.isfinite(p)
    ]
    found = {"loss": max(far, default=0.0)}
    for name, what in WORDS.items():
        p, q = getattr(x, name), getattr(y, name)
        if p is not None and q is not None:
            found[what] = _share(p, q, [getattr(step, name) for step in usual])
    words, beyond = _against(found, known)
    good = beyond <= (2 if known is HALF else 1)
    text = f"all steps before {place + 1} are equal bit for bit; there {words}, from the same random numbers and the same data"
    return Check("first step that differs", good, text)


def tolerance_of(ev: Evidence) -> Tolerance:
    """By what the runs computed in."""
    return SINGLE if single(ev) else HALF


def single(ev: Evidence) -> bool:
    """Both compute in float32 throughout, as they recorded it; by the rules where there is no
    record of it.
    """
    return not alike.known_low(ev)


def first_step(ev: Evidence) -> Check:
    """(i). ``passed`` is None where random masks or other weights make it impossible to say."""
    name = "first step"
    if not equal_start(ev.a, ev.b):
        text = "the weights differ before the first step, so that it cannot be compared"
        return Check(name, None, text)
    agreeing = alike.agreeing_steps(ev)
    whole = ev.effect != "unknown" or alike.throughout(ev)
    far = first_differences(ev.a, ev.b, FIRST if whole else min(FIRST, max(1, agreeing)))
    if not far:
        return Check(name, None, "no loss and no gradient was seen at the first step")
    known = tolerance_of(ev)
    text, beyond = _against(far, known)
    loss = far.get("loss", 0.0)
    if loss > known.loss and agreeing > 0:
        return Check(name, False, f"{text}, from the same random numbers and the same data")
    if loss > known.loss:
        text += ": more than rounding, so either random masks are drawn differently or something else is computed"
        return Check(name, None, text)
    if beyond > 1:
        # The masks are the same: beyond that, it is no rounding.
        limit = 2 if known is HALF else 1 if agreeing > 0 else 10
        told = "loss" in far or agreeing > 0
        return Check(name, False if told and beyond > limit else None, text)
    return Check(name, True, text)


def distances(ev: Evidence) -> Check:
    """(ii). Over the first EARLY losses, and between the final weights."""
    name = "as far as rounding carries"
    tried = []
    measures = (("losses", lambda x, y: apart(x, y, EARLY)), ("final weights", state_apart))
    for ruler, middle, own, words in (
        (ev.double, ev.double, ev.a, "the run in double precision, the original's"),
        (ev.perturbed, ev.a, ev.perturbed, "the original's, those moved by one rounding"),
    ):
        if ruler is None or middle is None or own is None:
            continue
        found = [(what, m(ev.b, middle), m(own, middle)) for what, m in measures]
        text = "; ".join(f"{what} {x:.2g} from {words} {y:.2g}" for what, x, y in found)
        known = [(x, y) for _, x, y in found if x > 0 or y > 0]
        if surely(x <= FACTOR * y < math.inf for x, y in known):
            return Check(name, True, f"{text} (at most {FACTOR:g} times as far)")
        tried.append(text)
    far = departs(ev)
    if far is not None:
        return far
    if not tried:
        text = "no run in double precision and none with perturbed parameters could be made"
        return Check(name, None, text)
    return Check(name, None, " | ".join(tried))


def yardsticks(ev: Evidence) -> list[Run]:
    """Runs that rounding alone has moved away from the original."""
    return not_none((ev.perturbed, ev.double)) + list(ev.originals[1:])


def moved(ev: Evidence) -> list[float]:
    """How far a yardstick has moved by each loss."""
    rulers = yardsticks(ev)
    length = min((len(run.record.losses) for run in (ev.a, ev.b, *rulers)), default=0)
    by_loss = zip(*(spans(ev.a, run)[:length] for run in rulers), strict=True)
    return [*accumulate(map(max, by_loss), max)]


def tame(ev: Evidence, eps: float) -> tuple[int, bool]:
    """Over how many losses, and whether up to the final weights, no yardstick moved by more than
    TAME roundings.
    """
    limit, own = min(TAME * eps, 0.05), moved(ev)
    until = sum(value <= limit for value in own)
    whole = all(state_apart(ev.a, run, False) <= limit for run in yardsticks(ev))
    return until, until == len(own) and whole


def departs(ev: Evidence) -> Check | None:
    """The other run leaves the original's as rounding cannot: see the head of this file. None: it
    does not, or nothing can be said.
    """
    rulers = yardsticks(ev)
    if ev.perturbed is None or not equal_start(ev.a, ev.b) or drawn_otherwise(ev) or unruly(ev):
        return None
    eps = SINGLE_STEP if single(ev) else HALF_STEP
    until, whole = tame(ev, eps)
    if not until:
        return None
    name = "as far as rounding carries"
    # What rounding does some steps later is allowed already: it may grow earlier in the other run.
    own = [max(eps, value) for value in moved(ev)[:until]]
    own = own[EARLY:] + own[-1:] * EARLY
    other = spans(ev.a, ev.b)[:until]
    beyond = (value > max(FAR * near, SEEN) for value, near in zip(other, own, strict=False))
    place = next((i for i, far in enumerate(beyond) if far), None)
    drawn = sum(step.backwards for step in ev.a.record.steps[: alike.agreeing_steps(ev)])
    if place is not None and place < drawn:
        text = f"loss {place + 1} is {other[place]:.2g} away from the original's, where rounding makes {own[place]:.2g}; "
        return Check(name, False, f"{text}random numbers and data are the same until there")
    masked = set(ev.a.record.precision) == set(ev.b.record.precision) and not alike.determined(ev)
    if ev.effect == "unknown" and (masked or not alike.throughout(ev)):
        return None  # what was drawn, masked or given otherwise carries further than rounding
    if whole and not single(ev) and steadily(ev):
        far = fmean(spans(ev.a, ev.b))
        near = max(eps / FAR, *(fmean(spans(ev.a, run)) for run in rulers))
        if far > max(FAR_LOW * near, SEEN):
            text = f"losses are {far:.2g} away from the original's on average, where rounding makes {near:.2g}; random numbers and data are the same"
            return Check(name, False, text)
    if whole:
        for what, buffers, least in (("final weights", False, SEEN), ("final buffers", True, 1e-2)):
            far, near = (
                state_apart(ev.a, ev.b, buffers),
                max(eps, *(state_apart(ev.a, run, buffers) for run in rulers)),
            )
            # Buffers (running means) do not act on the losses of training, so nothing of theirs is
            # asked for.
            if far > max(FAR * near, least) and (buffers or place is not None):
                first = f"; the losses from {place + 1} on" if place is not None else ""
                text = f"{what} are {far:.2g} away from the original's, where rounding makes {near:.2g}{first}"
                return Check(name, False, text)
        return None
    # It leaves long before rounding could have grown.
    if place is not None and place + EARLY < until:
        text = f"loss {place + 1} is {other[place]:.2g} away from the original's, where rounding makes {own[place]:.2g}"
        return Check(name, False, text)
    return None


def unruly(ev: Evidence) -> bool:
    """From gradients that differ by a rounding come other updates, in the other run alone, before
    the losses part: where gradients of single parameters cancel to 0, an adaptive optimizer turns
    the rounding that is left into full steps, and no yardstick knows of it."""
    runs = [run.record.steps for run in (ev.a, ev.b, *yardsticks(ev))]
    for x, y, *rulers in zip(*runs, strict=False):
        if any(_share(p, q, x.losses) > TINY for p, q in zip(x.losses, y.losses, strict=False)):
            return False
        for place in range(min(len(step.update_norms) for step in (x, y, *rulers))):
            one, two = (step.grad_norms[place : place + 1] for step in (x, y))
            before, after, *others = (step.update_norms[place] or 0.0 for step in (x, y, *rulers))
            alike_ = one and two and one != two and _share(one[0] or 0.0, two[0] or 0.0) <= TINY
            near = max((_share(before, u) for u in others), default=0.0)
            if alike_ and _share(before, after) > max(FAR * TINY, FAR * near):
                return True
    return False


def steadily(ev: Evidence) -> bool:
    """To the end of the runs the same is drawn and given, and both compute in the same
    precisions.
    """
    same = set(ev.a.record.precision) == set(ev.b.record.precision)
    return same and alike.determined(ev)


def drawn_otherwise(ev: Evidence) -> bool:
    """Random masks may differ: the first losses of some optimizer do so by more than rounding,
    though its parameters are still the same.
    """
    seen: set[int] = set()
    if alike.agreeing_steps(ev) > 0:
        return False
    allowed = tolerance_of(ev).loss
    for x, y in zip(ev.a.record.steps, ev.b.record.steps, strict=False):
        if x.optimizer not in seen:
            seen.add(x.optimizer)
            if any(
                _share(p, q) > allowed
                for p, q in zip(x.losses, y.losses, strict=False)
                if math.isfinite(p)
            ):
                return True
    return False


def near(ev: Evidence) -> bool:
    """So close over the whole run that it is worth asking how far rounding carries."""
    alone = spans(ev.a, ev.b)
    return single(ev) and bool(alone) and max(alone) <= SEEN


def coincides(ev: Evidence) -> bool:
    """Under every seed the two trainings are the same but for rounding, in every loss and norm and
    in the final weights, to the end of the runs.

    Then it does not matter what was drawn, which calls were made, and whether the loss falls. In
    float32 alone, and where rounding
    stays what it is (``tame``): elsewhere it could hide something.
    """
    if not single(ev) or ev.perturbed is None or not tame(ev, SINGLE_STEP)[1]:
        return False
    rulers = yardsticks(ev)
    loss = FACTOR * max(SINGLE_STEP, *(max(spans(ev.a, run), default=0.0) for run in rulers))
    weights = FACTOR * max(SINGLE_STEP, *(state_apart(ev.a, run, False) for run in rulers))
    return all(
        len(a.record.losses) == len(b.record.losses) > 0
        and max(spans(a, b)) <= loss
        and state_apart(a, b, False) <= weights
        and _norms_alike(a, b)
        for a, b in ev.pairs
    )


def _norms_alike(a: Run, b: Run) -> bool:
    """Gradients and updates of every step: weights that hardly move would not tell."""
    known = 0
    if a.steps_made != b.steps_made:
        return False
    for what, most in (("grad_norm", SINGLE.gradient), ("update_norm", SINGLE.update)):
        one, two = ([getattr(step, what) for step in run.record.steps] for run in (a, b))
        for p, q in zip(one, two, strict=True):
            if (p is None) != (q is None):
                return False
            if p is not None and q is not None:
                known += 1
                if _share(p, q, one) > most:
                    return False
    return known > 0


def judge(ev: Evidence) -> list[Check]:
    """(i), at the first step or the first one that differs, and (ii); the second is shown as a
    failure only where the first did not decide.
    """
    parts = parting_step(ev)
    one, two = first_step(ev), distances(ev)
    return [parts if parts is not None and parts.passed is False else one, two]


def settled(ev: Evidence, checks: list[Check]) -> bool:
    """(i) or (ii) holds, and neither is broken; in float32 (ii) holds, unless it cannot be told."""
    if any(c.passed is False for c in checks):
        return False
    first, distance = checks
    if not single(ev) or (ev.double is None and ev.perturbed is None):
        return any(c.passed for c in checks)
    return bool(distance.passed or (first.passed and tame(ev, SINGLE_STEP)[0] < EARLY))
