"""Averages of the weights (an EMA, a teacher): at which rate they follow, and whether the weights
before a step or after it.

That is a law, no number of the training: it is compared whatever was drawn.
"""

from __future__ import annotations

from collections.abc import Sequence

from autofast.verify.estimates import median
from autofast.verify.evidence import alike
from autofast.verify.evidence.gathered import Evidence
from autofast.verify.evidence.record import Followed
from autofast.verify.result import Check, differs, holds, unclear

NAME = "averages of the weights"
LEAST = 4  # times that one was seen to move, without which nothing is said
RATE = 0.05  # by which its rate may be off in the median


def check(ev: Evidence) -> Check | None:
    a, b = ev.a.record.averages, ev.b.record.averages
    if len(a) < LEAST or len(b) < LEAST:
        if len(a) < LEAST or b or alike.throughout(ev):
            return None
        text = f"the original keeps one (rate {_rate(a):.3g}), which is not seen here: a checkpoint or a print of it would tell"
        return unclear(text)
    one, two = (_late(rows) for rows in (a, b))
    if one != two:
        when = ("after", "before")
        text = f"they are taken of the weights {when[two]} a step, {when[one]} it in the original"
        return differs(text)
    steps = {row.step for row in a} & {row.step for row in b}
    rates = [
        [_rate([row for row in rows if row.step == step]) for step in sorted(steps)]
        for rows in (a, b)
    ]
    off = median([y / x for x, y in zip(*rates, strict=True)]) if steps else 1.0
    if abs(off - 1) > RATE:
        text = f"they follow at a rate of {_rate(b):.3g}, {_rate(a):.3g} in the original"
        return differs(text)
    held = [len({row.parameter for row in rows}) for rows in (a, b)]
    if 2 * held[1] < held[0]:
        text = f"{held[1]} of the parameters looked at have one, {held[0]} in the original"
        return differs(text)
    return holds(f"at a rate of {_rate(a):.3g}, as in the original")


def _late(rows: Sequence[Followed]) -> bool:
    return 2 * sum(row.late for row in rows) > len(rows)


def _rate(rows: Sequence[Followed]) -> float:
    return median([row.rate for row in rows])
