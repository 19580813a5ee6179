"""A search for people: one sentence, what became of each rule, how it was measured."""

from __future__ import annotations

from autofast.report import tune_words as words
from autofast.report.style import Style
from autofast.report.verify_text import table, wrapped
from autofast.tune.result import Fate, Tuned

_COLOURS = {
    Fate.KEPT.value: "green",
    Fate.SLOWER.value: "red",
    Fate.NO_GAIN.value: "dim",
    Fate.UNMEASURED.value: "yellow",
}


def text(t: Tuned, style: Style) -> str:
    """The whole report."""
    tone = "green" if t.found.claim is not None else "yellow" if t.found.kept else "cyan"
    blocks = [wrapped(words.sentence(t), style, "bold", tone)]
    if t.found.decisions:
        rows = [tuple(cell or "-" for cell in row) for row in words.rows(t)]
        shown = table(words.COLUMNS, rows, style, colours=_COLOURS)
        blocks.append(f"{style('Rules', 'bold')} (time without ÷ time with)\n{shown}")
    if t.runs:
        blocks.append(f"{style('How it was measured', 'bold')}\n{table((), words.facts(t), style)}")
    return "\n".join(blocks)
