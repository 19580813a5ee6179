"""The sizes of single tensors over seeds, as training begins and as it ends: an initialisation, a
decay or a part that is no longer trained need not show in the loss or in the norms of whole groups.

The mean log of a tensor's norm must agree to within 10 %, or within what the seeds cannot tell
apart at a risk of one in a thousand for all tensors together (Bonferroni). Tensors are matched by
name and shape.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from autofast.verify.estimates import times
from autofast.verify.evidence import course
from autofast.verify.evidence.gathered import Evidence
from autofast.verify.evidence.numbered import plain
from autofast.verify.evidence.record import Run, TensorPrint
from autofast.verify.judging.exact import state_apart
from autofast.verify.judging.seeded import LEAST, PART_LEVEL
from autofast.verify.result import Check, differs

RISK = 1e-3  # that any one of the tensors of two equal scripts is off
FAR = 3e-3  # of the norm of all parameters: averages of them may be taken in another order
BEGIN, END = "tensors at the first step over seeds", "tensors at the end over seeds"


def _prints(run: Run, at_end: bool) -> dict[str, TensorPrint]:
    found = run.record.model if at_end else run.record.start
    return {plain(k): v for k, v in found.items() if "float" in v.dtype}


def _norms(ev: Evidence, at_end: bool) -> dict[str, tuple[list[float], list[float]]]:
    """By tensor, those of the original's runs and of the rewritten one's; of tensors that all runs
    have in one shape.
    """
    both = [tuple(_prints(run, at_end) for run in pair) for pair in ev.pairs]
    runs = [prints for pair in both for prints in pair]
    names = set.intersection(*({(k, v.shape) for k, v in prints.items()} for prints in runs))
    found = {
        name: ([a[name].norm for a, _ in both], [b[name].norm for _, b in both])
        for name, _ in sorted(names)
    }
    return {k: v for k, v in found.items() if all(math.isfinite(x) for some in v for x in some)}


def _off(one: Sequence[float], two: Sequence[float], tensors: int) -> str:
    if max(one) == 0 < min(two):
        return "is zero in the original, and not here"
    if max(two) == 0 < min(one):
        return "is zero, and not in the original"
    if min(*one, *two) <= 0:
        return ""
    logs = [[math.log(x) for x in some] for some in (one, two)]
    text = times(logs[0], logs[1], PART_LEVEL, RISK / tensors)
    return text and f"has a norm {text}"


def _check(ev: Evidence, at_end: bool) -> Check | None:
    if len(ev.pairs) < LEAST:
        return None
    norms = _norms(ev, at_end)
    off = {name: _off(*both, len(norms)) for name, both in norms.items()}
    wrong = [f"{name} {text}" for name, text in off.items() if text]
    name = END if at_end else BEGIN
    if wrong:
        more = f"; so {len(wrong) - 1} more of {len(norms)}" if len(wrong) > 1 else ""
        return Check(name, False, wrong[0] + more)
    return Check(name, True, f"{len(norms)} of like size") if norms else None


def loaded(ev: Evidence) -> Check | None:
    """Of pairs that are the same to the bit until the last step, in evaluation and saves too: no
    rounding has moved anything, and what ends elsewhere was given other weights."""
    whole = ev.uncut or ev
    for a, b in course.pairs(whole):
        steps = a.steps_made
        same = course.trained_alike(a.record, b.record, draws=True)
        if not same or _until(a, steps) != _until(b, steps):
            continue
        if (far := state_apart(a, b, buffers=False)) > FAR:
            text = f"{far:.2g} of their norm apart, and all before the same to the bit: others were loaded, or kept (seed {a.seed})"
            return differs(text)
    return None


def _until(run: Run, steps: int) -> tuple[object, ...]:
    """What is seen of a run beside its steps, before the last of them."""
    record = run.record
    saves = [(s.step, {k: v.sha for k, v in s.tensors.items()}) for s in record.saves]
    return (
        [e for e in record.evaluations if e.step < steps],
        [(c.model, c.samples, c.sums, c.step) for c in record.calls if c.step < steps],
        [save for save in saves if save[0] < steps],
    )


def checks(ev: Evidence) -> list[Check]:
    """A recipe may end elsewhere."""
    found = [_check(ev, at_end) for at_end in (False, True) if not at_end or ev.effect != "recipe"]
    return [check for check in found if check]
