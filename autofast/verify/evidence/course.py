"""Where the numbers of a training decide its course: early stopping, ``while loss > eps``, a rate
that falls on a plateau.

There one rounding, or another draw, ends a training at another step, and a rewrite may do that too.
Three things tell it from a rewrite that loses or gains steps:

* Up to the place where the two runs part in a bit, nothing but the script can have made the
  difference.
* The original itself does it: under other seeds, in double precision, or with its parameters moved
  by one rounding, it ends elsewhere as well.
* Over seeds, the numbers of steps are those of the original.

Runs of unequal length are compared as far as both go (``shared``)."""

from __future__ import annotations

import math
from collections.abc import Callable

from autofast.verify.estimates import difference, fmean, spread
from autofast.verify.evidence.gathered import Evidence
from autofast.verify.evidence.record import Record, Run, Step
from autofast.verify.result import Check, differs, holds, unclear

LEAST = 4  # runs of the original before it is said that something never changes in it
NAME = "optimizer steps and backwards"
ENOUGH = 6  # pairs before numbers of steps are compared: fewer may differ equally by chance
ONE_WAY = 12  # pairs that differ, all in one direction: 1 in 2048 by chance


def pairs(ev: Evidence) -> tuple[tuple[Run, Run], ...]:
    """At equal seeds, all of them come to their end."""
    if ev.pairs or not ev.originals or not ev.rewritten:
        return ev.pairs
    return (ev.both,) if ev.a.ok and ev.b.ok else ()


def arms(ev: Evidence) -> tuple[list[Run], list[Run]]:
    """Runs of both, at equal seeds."""
    both = pairs(ev)
    return [a for a, _ in both], [b for _, b in both]


def known(ev: Evidence) -> bool:
    """The original was run often enough to say that something never changes in it."""
    return len(ev.others) >= min(LEAST, ev.seeds)


def runs(ev: Evidence) -> list[Run]:
    """Of the original under every seed, and those that rounding alone has moved."""
    found = (*ev.originals, *ev.others, ev.double, ev.perturbed)
    return [run for run in found if run is not None and run.records]


def _told(step: Step, draws: bool) -> str:
    """So that nan equals nan and 0 does not equal -0."""
    state = step.random.partition(" ")[0] if draws else ""
    norms = step.grad_norm, step.update_norm, step.state_norm
    return repr((step.losses, *norms, step.skipped, state))


def together(a: Record, b: Record, draws: bool = True) -> int:
    """Over how many steps two runs are the same to the bit; ``draws``: in the states of their
    random generators too."""
    both = enumerate(zip(a.steps, b.steps, strict=False))
    shorter = min(len(a.steps), len(b.steps))
    return next((i for i, (x, y) in both if _told(x, draws) != _told(y, draws)), shorter)


def trained_alike(a: Record, b: Record, draws: bool = False) -> bool:
    """All steps are the same bits, whatever became of what is made of the weights beside."""
    return 0 < len(a.steps) == len(b.steps) == together(a, b, draws)


def off(
    ev: Evidence, of: Callable[[Run], float | None], least: int = LEAST, floor: float = 0.0
) -> tuple[float, float, int] | None:
    """The means of a number of both scripts, and over how many seeds, where they are further apart
    than ``floor`` and than chance makes them."""
    found = [(of(a), of(b)) for a, b in ev.pairs]
    both = [(x, y) for x, y in found if x is not None and y is not None]
    both = [(x, y) for x, y in both if math.isfinite(x) and math.isfinite(y)]
    if len(both) < least:
        return None
    one, two = [x for x, _ in both], [y for _, y in both]
    apart = difference(one, two)
    beyond = abs(apart.value) > max(floor, apart.half(0.9995))
    return (fmean(one), fmean(two), len(both)) if beyond else None


def more_seeds(ev: Evidence) -> str:
    """What would tell where ``ev.seeds`` did not, or were not all run."""
    return f"more seeds would tell (--seeds {2 * max(ENOUGH, ev.seeds)}, and the --time-budget for them)"


def numbers_decide(ev: Evidence, a: Run, b: Run, place: int) -> bool:
    """What differs at step ``place`` of two runs may follow from their numbers: these differ
    before."""
    return ev.effect != "exact" and place > together(a.record, b.record)


def unequal(ev: Evidence) -> bool:
    """Some pair makes unequal numbers of steps, and it is not the rewrite's business to."""
    return ev.effect not in ("exact", "recipe") and any(
        a.steps_made != b.steps_made for a, b in pairs(ev)
    )


def by_calls(run: Run) -> bool:
    """Without optimizers and gradients a call by other parameters is a step: of several that are
    put together (``vmap``) there is one."""
    return all(step.optimizer < 0 and not step.backwards for step in run.record.steps)


def steps(ev: Evidence) -> Check | None:
    """Numbers of steps, where they differ in some pair; None where they do in none."""
    if not unequal(ev):
        return None
    if by_calls(ev.a) and by_calls(ev.b):
        text = f"{ev.b.steps_made} calls of a model by other parameters, {ev.a.steps_made} in the original: without an optimizer those are its steps"
        return unclear(
            f"{text}, and such that are put together do not compare; one by one in both, they would",
        )
    for a, b in pairs(ev):
        if a.steps_made == b.steps_made:
            continue
        text = f"{b.steps_made} optimizer steps, {a.steps_made} in the original"
        text += f" (seed {a.seed})" if a.seed else ""
        if not numbers_decide(ev, a, b, min(a.steps_made, b.steps_made)):
            return differs(f"{text}; until then not a bit differs")
        if len({run.steps_made for run in runs(ev)}) == 1:
            if known(ev):
                often = f"under {len(ev.others)} seeds and however it rounds"
                return differs(f"{text} {often}")
            text += f": not yet known whether seeds or rounding change that number in the original; {more_seeds(ev)}"
            return unclear(text)
    return _over_seeds(ev)


def _over_seeds(ev: Evidence) -> Check:
    before, after = ([float(pair[k].steps_made) for pair in pairs(ev)] for k in (0, 1))
    found, wide = difference(before, after), spread(before)
    text = (
        f"{fmean(after):.4g} optimizer steps in the mean over {len(before)} seed{'s' * (len(before) != 1)}, "
        f"{fmean(before):.4g} ± {wide:.2g} in the original, whose numbers decide when it stops"
    )
    deltas = [y - x for x, y in zip(before, after, strict=True) if x != y]
    one_way = len(deltas) * (min(deltas) > 0 or max(deltas) < 0)
    if len(before) >= ENOUGH:
        if one_way >= ONE_WAY or abs(found.value) > found.half(0.9995):
            return differs(f"{text}: more than chance")
        if one_way < ENOUGH and abs(found.value) + found.half(0.95) <= 2 * wide:
            return holds(text)
    return unclear(f"{text}: not yet clear; {more_seeds(ev)}")
