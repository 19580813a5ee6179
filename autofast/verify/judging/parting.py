"""Where two runs first part, and which changed places ran: where to look when a rewrite trains
differently.
"""

from __future__ import annotations

from autofast.report.style import count
from autofast.verify.evidence import alike
from autofast.verify.evidence.gathered import Evidence
from autofast.verify.evidence.record import Step
from autofast.verify.judging import coverage

MOST = 3  # changed places that are named


def lead(ev: Evidence) -> str:
    """One or two clauses; empty where the rewritten script took no step."""
    if not ev.a.records or not ev.b.records or not ev.a.record.steps or not ev.b.record.steps:
        return ""
    return "; ".join(clause for clause in (place(ev), _hunks(ev)) if clause)


def place(ev: Evidence) -> str:
    one, two = ev.a.record.steps, ev.b.record.steps
    for number, (x, y) in enumerate(zip(one, two, strict=False)):
        what = _difference(ev, number, x, y)
        if what:
            before = "; all before is the same to the bit" if number else ""
            return f"the two part in step {number + 1} of {len(one)}, first in {what}{before}"
    if len(one) != len(two):
        return f"all of the {count(min(len(one), len(two)), 'step')} that both take are the same to the bit: look at what ends the training"
    return "all steps are the same to the bit: look at what is made of them beside (evaluation, saves, prints, what follows the last step)"


def _difference(ev: Evidence, number: int, x: Step, y: Step) -> str:
    """What comes first in a step, of all that differs."""
    if x.lr != y.lr:
        return "the learning rate"
    if x.backwards != y.backwards:
        return "the number of backwards"
    if alike.other_data(ev) == number:
        return "what the models are given"
    for what, name in (
        ("the loss", "losses"),
        ("the gradient (the loss is the same)", "grad_norm"),
        ("the update (loss and gradient are the same)", "update_norm"),
        ("the movement of the buffers (loss, gradient and update are the same)", "state_norm"),
    ):
        if repr(getattr(x, name)) != repr(getattr(y, name)):
            drawn = "" if x.random == y.random else " and in the random numbers that are drawn"
            return what + drawn
    return "the random numbers that are drawn" if x.random != y.random else ""


def _hunks(ev: Evidence) -> str:
    if not ev.a.record.lines or not ev.b.record.lines:
        return ""
    places = [hunk.words for hunk in coverage.reached_hunks(ev)]
    if not places:
        return ""
    if len(places) == 1:
        return f"the one changed place that ran is {places[0]}"
    more = f" and {len(places) - MOST} more" if len(places) > MOST else ""
    named = ", ".join(places[:MOST])
    return f"changed places that ran: {named}{more}; take them back one at a time"
