"""What losses are given beside outputs, behind other draws: labels, noise, values to come near to.

No model is given them, and the loss scatters too much to tell. Compared are the law by which they
are drawn, and whether a sample has the target of before when it comes again with its input; and
whether losses leave pads out. Other losses, or as many numbers of them as the original does not
have, tell nothing.
"""

from __future__ import annotations

from functools import partial

from autofast.verify.estimates import fmean
from autofast.verify.evidence import course
from autofast.verify.evidence.gathered import Evidence
from autofast.verify.evidence.record import Run, Target
from autofast.verify.judging import laws, rounding
from autofast.verify.result import Check, differs, holds

NAME = "what the losses are given"
AS_MANY = 0.01  # numbers more or less: pads that are cut off, or rows that are masked
AGAIN = 50  # samples
LEAST = 0.05


def check(ev: Evidence) -> Check | None:
    runs = [run for pair in ev.pairs for run in pair]
    kinds = set.intersection(*({*run.record.targets} for run in runs)) if runs else set()
    pairs = {k: [(a.record.targets[k], b.record.targets[k]) for a, b in ev.pairs] for k in kinds}
    if (text := _left_out(pairs)) and not rounding.coincides(ev):
        return differs(text)
    looked = [k for k in sorted(kinds) if all(_comparable(*pair) for pair in pairs[k])]
    if not looked or rounding.coincides(ev):
        return None
    for kind in looked:
        found = course.off(ev, partial(_again, kind=kind), floor=LEAST)
        if found:
            one, two = (f"{100 * share:.0f} %" for share in found[:2])
            return differs(f"{two} of the {kind} are those of before when their sample comes again, {one} in the original")  # fmt: skip
        text = laws.apart(*([list(pair[k].laws) for pair in pairs[kind]] for k in (0, 1)))
        if text:
            return differs(f"{kind}: {text}: drawn by another law")
    return holds(f"drawn as in the original: {', '.join(looked)}")


def _left_out(pairs: dict[str, list[tuple[Target, Target]]]) -> str:
    """As many numbers are given under every seed, of which one of the two leaves some out, and the
    other none."""
    for kind, some in pairs.items():
        if any(t.by_hand for pair in some for t in pair) or not all(_as_many(*p) for p in some):
            continue
        one, two = ([p[k].left_out / p[k].numbers for p in some] for k in (0, 1))
        if min(max(one), max(two)) == 0 and max(min(one), min(two)) > AS_MANY:
            return f"losses leave out {100 * fmean(two):.2g} % of the {kind}, {100 * fmean(one):.2g} % in the original"
    return ""


def _as_many(one: Target, two: Target) -> bool:
    return abs(one.numbers - two.numbers) <= AS_MANY * one.numbers


def _comparable(one: Target, two: Target) -> bool:
    return _as_many(one, two) and one.calls == two.calls


def _again(run: Run, kind: str) -> float | None:
    target = run.record.targets[kind]
    return target.same / target.again if target.again >= AGAIN else None
