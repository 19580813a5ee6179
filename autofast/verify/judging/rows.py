"""In which order, and which, rows are taken of the data: of data in memory too, and whatever noise
lies over them.
"""

from __future__ import annotations

from autofast.verify.estimates import fmean
from autofast.verify.evidence import course
from autofast.verify.evidence.gathered import Evidence
from autofast.verify.evidence.record import Run
from autofast.verify.result import Check

NAME = "rows of the data"
ALIKE = 0.2  # so much fewer or more are others: of another step of what is made of them
PASSES = 1.5  # times that each is taken
LOOKS = (  # in the order of probe/rows.py, behind their number; what makes a difference
    ("a row is taken again {} of a pass too early or too late", 0.08),
    ("rows that follow each other do so again in {} of the cases", 0.25),
    ("their mean place in the data is {}", 0.03),
    ("their distance from that is {} on average", 0.03),
)


def check(ev: Evidence) -> Check | None:
    if not ev.pairs:
        return None
    sizes = set.intersection(*({*run.record.rows} for pair in ev.pairs for run in pair))
    looked = 0
    for size in sorted(sizes, key=int):
        if not all(_comparable(*(run.record.rows[size][0] for run in pair)) for pair in ev.pairs):
            continue
        looked += 1
        for place, (words, least) in enumerate(LOOKS, 1):

            def look(run: Run, place: int = place) -> float | None:
                rows = run.record.rows[size]
                enough = place > 2 or rows[0] > PASSES * int(size) and rows[place] >= 0
                return rows[place] if enough else None

            found = course.off(ev, look, floor=least)
            if found:
                text = words.format(f"{found[1]:.2f}")
                return Check(NAME, False, f"of {size}, {text}, {found[0]:.2f} in the original")
    return (
        Check(NAME, True, f"in the order of the original, of {looked} lengths") if looked else None
    )


def _comparable(one: float, two: float) -> bool:
    return abs(one - two) <= ALIKE * one
