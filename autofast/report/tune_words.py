"""What is said of a search, in words: one sentence, the rows of its table, the factor behind each
rule.
"""

from __future__ import annotations

from collections.abc import Iterator

from autofast.report import verify_words as words
from autofast.report.style import count
from autofast.tune.result import KEPT, Decision, Fate, Tuned
from autofast.verify.result import Ratio

COLUMNS = ("rule", "alone", "on top", "left out", "what became of it")


def factor(r: Ratio | None) -> str:
    """``1.32× (1.27–1.38)``; empty where nothing was measured."""
    value, between = words.ratio(r)
    if r is None or value == words.NONE:
        return ""
    wide = "–" in between and ("∞" in between or r.low <= 0)
    return f"{value}×" if wide else f"{value}× ({between})"


def measured(t: Tuned) -> dict[str, str]:
    """What stands behind the names of the rules that are kept: ``1.32× (1.27–1.38) alone``."""
    said = {}
    for row in t.found.decisions:
        if row.fate in KEPT and (alone := factor(row.alone)):
            said[row.unit.rule] = f"{alone} measured alone"
    return said


def sentence(t: Tuned) -> str:
    """The whole finding. A gain is named only where the confirmation has shown it."""
    found = t.found
    kept = [row.unit.name for row in found.decisions if row.fate in KEPT]
    if not found.decisions:
        return f"Nothing to tune: autofast changes nothing in {t.script}."
    if not found.kept:
        if found.by_user:
            return f"Ended by Ctrl-C before anything was found to pay: {t.script} stays as it is."
        if any(row.fate is Fate.UNCONFIRMED for row in found.decisions):
            return f"Nothing pays for sure: no gain was confirmed, {t.script} stays as it is."
        short = any(row.fate is Fate.UNMEASURED for row in found.decisions)
        why = "the time was too short to tell all that pays" if short else "nothing pays here"
        return f"{why[:1].upper()}{why[1:]}: {t.script} stays as it is."
    names = ", ".join(kept)
    if found.claim is None:
        return f"Best so far, not confirmed: {names} (ended by Ctrl-C)."
    same = "identical" if _identical(t) else "equivalent"
    return f"{factor(found.claim)} faster, {same} training: {names}."


def _identical(t: Tuned) -> bool:
    v = t.confirmation
    return v is not None and v.parity is not None and v.parity.verdict.value == "identical"


def rows(t: Tuned) -> list[tuple[str, str, str, str, str]]:
    """The table: what is kept first, then what is not, in the order of the gain alone."""

    def place(row: Decision) -> tuple[bool, float]:
        return (row.fate not in KEPT, -(row.alone.value if row.alone else 0.0))

    return [
        (
            row.unit.name,
            factor(row.alone),
            factor(row.on_top),
            factor(row.left_out),
            ": ".join(filter(None, [row.fate.value, words.one_line(row.note)])),
        )
        for row in sorted(t.found.decisions, key=place)
    ]


def facts(t: Tuned) -> list[tuple[str, str]]:
    """How it was measured."""
    steps = f"{count(t.steps, 'optimizer step')} each" if t.steps else "to the script's own end"
    return [
        ("command", t.command),
        ("runs", f"{count(t.runs, 'run')} in fresh processes, {steps}"),
        ("time", f"{t.seconds:.0f} s" + (f" of {t.budget:.0f} s given" if t.budget else "")),
        *_noise(t),
        *_confirmed(t),
        *([("ended early", t.found.interrupted)] if t.found.interrupted else []),
    ]


def _noise(t: Tuned) -> Iterator[tuple[str, str]]:
    if t.noise is not None:
        yield "noise floor", f"{words.floor(t.noise)} (the original against itself)"


def _confirmed(t: Tuned) -> Iterator[tuple[str, str]]:
    v = t.confirmation
    if v is None:
        return
    if v.speed is not None:
        ratio = words.interval(v.speed.ratio)
        pairs = count(v.speed.ratio.pairs, "fresh pair")
        yield "confirmation", f"{v.speed.verdict.name}, {ratio}, {pairs}"
        if back := ", ".join(words.pays_back(v.speed)):
            yield "start-up", back
    if v.parity is not None:
        yield "sameness", f"{v.parity.verdict.name}: {v.parity.summary}"
