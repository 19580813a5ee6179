"""Which rule of a rewrite that trains differently makes the difference: halves of the rules are
judged, each alone, with the runs of the original that were made already."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autofast.verify.evidence.gathered import Wish
from autofast.verify.evidence.record import Run, Words
from autofast.verify.judging import parity
from autofast.verify.result import Parity, Sameness

Judge = Callable[[Words], Parity | None]
WRONG = (Sameness.DIFFERENT, Sameness.BROKEN)


def suspected(rules: Sequence[str], judged: Judge) -> str:
    """In words; empty where nothing can be said. ``judged``: what comes of the script with these
    rules alone, None where they change nothing by themselves or the time is up."""
    some, last = tuple(rules), None
    while len(some) > 1:
        middle = len(some) // 2
        for half in (some[:middle], some[middle:]):
            found = judged(half)
            if found is not None and found.verdict in WRONG:
                some, last = half, found
                break
        else:
            break
    if len(some) == len(rules) > 1:
        return "no half of the rules differs by itself: they do so together (--by-rule leaves out one at a time)"
    names = ", ".join(some)
    why = f" ({last.summary})" if last is not None else ""
    options = " ".join(f"--ignore {name}" for name in some)
    together = " together" if len(some) > 1 else " alone" if len(rules) > 1 else ""
    return f"{names}{together} makes the difference{why}: {options} leaves it out" if some else ""


def judge(
    make: Callable[[Wish, str], Run | None],
    originals: Sequence[Run],
    arm: str,
    effect: str,
    rules: Sequence[str],
    seeds: int,
    margin: float,
) -> Parity | None:
    """``make`` gives the run that is wished for, of the original or of ``arm``; None ends it."""
    runs = list(originals)
    while wishes := parity.wanted(effect, runs, rules=rules, arm=arm, seeds=seeds, margin=margin):
        for wish in wishes:
            made = make(wish, arm)
            if made is None:
                return None
            runs.append(made)
    return parity.judge(effect, runs, rules=rules, arm=arm, seeds=seeds, margin=margin)
