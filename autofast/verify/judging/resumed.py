"""``--resume-from``: what both scripts did with the checkpoint, and what the report says of
that.
"""

from __future__ import annotations

from autofast.model.several import any_in
from autofast.report.style import count
from autofast.verify.evidence.gathered import Evidence
from autofast.verify.evidence.record import Resumed, Run
from autofast.verify.result import Check, differs, holds


def words(found: Resumed) -> str:
    """Where the checkpoint says that it was made: "epoch 12, 3400 optimizer steps"; empty where it
    does not say.
    """
    parts = []
    for name, number in found.numbers.items():
        last = name.rpartition("/")[2]
        if name == "optimizer steps":
            parts.append(count(number, "optimizer step"))
        elif any_in(("epoch", "step", "iter"), last.lower()):
            parts.append(f"{last.replace('_', ' ')} {number}")
    return ", ".join(parts[:3])


def place(run: Run) -> str:
    """For the first sentence: "from last.pt (epoch 12) on"; empty where the run began at the
    beginning.
    """
    found = run.record.resumed
    if not run.resume or found is None:
        return ""
    said = words(found)
    return f"from {run.resume}{f' ({said})' if said else ''} on"


def check(ev: Evidence) -> Check | None:
    """Both scripts read the checkpoint and give a state to as much."""
    a, b = ev.a.record.resumed, ev.b.record.resumed
    if a is None or b is None:
        return None
    if a.read and not b.read:
        text = f"{ev.a.resume} is not read before the first step"
        return differs(text)
    for what, one, two in (
        ("model", a.models, b.models),
        ("optimizer", a.optimizers, b.optimizers),
    ):
        if bool(one) != bool(two):
            text = f"{'no' if one else 'an'} {what} gets a state from {ev.a.resume}"
            return differs(text)
    got = [word for word, number in (("model", a.models), ("optimizer", a.optimizers)) if number]
    state = " and ".join(got) if got else "nothing"
    return holds(f"{place(ev.a)}: {state} restored in both")
