"""``rewrite -i``: the user says of each fix whether it is wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby

from autofast.edit.amend import Key, key_of
from autofast.registry import all_rules, card
from autofast.report.frames import frames
from autofast.report.progress import Tell
from autofast.report.record import Record
from autofast.report.style import Style
from autofast.rule import Finding

ANSWERS = "y: apply it, n: leave it, a: apply it and all that follow, q: leave it and all that follow, ?: the card of the rule"


def pick(ask: Callable[[str], str], tell: Tell, style: Style) -> Picker:
    """A question for each fix, answered through ``ask``, which is given the question; ``tell``
    shows what is asked about.

    It may be called again, with fixes that come in the place of others; an answer about all that
    follow holds for these, too.
    """
    rest = ""  # the answer about all that follow

    def unwanted(fixes: Iterable[Finding]) -> list[Key]:
        nonlocal rest
        rules = all_rules()
        asked = [(Record.of(f, rules[f.rule].effect), key_of(f)) for f in fixes]
        asked.sort(key=lambda pair: pair[0])
        groups = [list(group) for _, group in groupby(asked, key=lambda pair: pair[0].place)]
        refused: list[Key] = []
        for n, group in enumerate(groups, 1):
            record = group[0][0]
            if not rest:
                tell("".join(frames([record], style)))
            number = f"{record.rule} ({n} of {len(groups)})"
            answer = rest or _answer(ask, tell, number, record.rule)
            if answer in "aq":
                rest = answer
            if answer in "nq":
                refused += [key for _, key in group]
        return refused

    return unwanted


Picker = Callable[[Iterable[Finding]], "list[Key]"]


def _answer(ask: Callable[[str], str], tell: Tell, what: str, rule: str) -> str:
    """One of y, n, a and q."""
    while True:
        answer = ask(f"Apply {what}? [y,n,a,q,?] ").strip().lower()[:1]
        if answer and answer in "ynaq":
            return answer
        tell(card(rule) if answer == "?" else f"{ANSWERS}\n")
