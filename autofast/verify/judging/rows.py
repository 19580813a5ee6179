"""In which order, and which, rows are taken of the data: of data in memory too, and whatever noise
lies over them.
"""

from __future__ import annotations

from functools import partial

from autofast.verify.evidence import course
from autofast.verify.evidence.gathered import Evidence
from autofast.verify.evidence.record import Run
from autofast.verify.result import Check, differs, holds

NAME = "rows of the data"
ALIKE = 0.2  # so much fewer or more are others: of another step of what is made of them
PASSES = 1.5  # times that each is taken
RETURNS = 2  # looks at what comes again
LOOKS = (  # in the order of probe/rows.py, behind their number; what makes a difference
    ("a row is taken again {} of a pass too early or too late", 0.08),
    ("rows that follow each other do so again in {} of the cases", 0.25),
    ("their mean place in the data is {}", 0.03),
)


def check(ev: Evidence) -> Check | None:
    seen = [run.record.rows for pair in ev.pairs for run in pair]
    looked = 0
    for size in sorted(set.intersection(*map(set, seen)) if seen else (), key=int):
        counts = [[run.record.rows[size][0] for run in pair] for pair in ev.pairs]
        if any(abs(one - two) > ALIKE * one for one, two in counts):
            continue
        looked += 1
        for place, (words, least) in enumerate(LOOKS, 1):
            found = course.off(ev, partial(_look, size=size, place=place), floor=least)
            if found:
                text = words.format(f"{found[1]:.2f}")
                return differs(f"of {size}, {text}, {found[0]:.2f} in the original")
    return holds(f"as in the original, of {looked} lengths") if looked else None


def _look(run: Run, size: str, place: int) -> float | None:
    """Of returns only where every row has come again."""
    taken = run.record.rows[size]
    known = place > RETURNS or taken[0] > PASSES * int(size) and taken[place] >= 0
    return taken[place] if known else None
