"""A verification for people: one sentence, then tables, a hundred columns wide; colours on a
terminal only."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence

from autofast.report import verify_facts as facts
from autofast.report import verify_words as words
from autofast.report.style import Style
from autofast.report.verify_words import sentence
from autofast.verify.result import Verification

__all__ = ["sentence", "text"]

WIDTH = 100
_TONES = {"good": "green", "even": "cyan", "bad": "red", "open": "yellow", "none": "dim"}
_OUTCOMES = {"passed": "green", "identical": "green", "failed": "red", "not decided": "yellow"}
_FINDINGS = {"helps": "green", "costs": "red", "unclear": "yellow"}


def text(v: Verification, style: Style) -> str:
    """The whole report."""
    tones = [tone for _, tone in words.badges(v)]
    worst = next((t for t in ("bad", "open", "good", "even") if t in tones), "none")
    blocks = [wrapped(sentence(v), style, "bold", _TONES[worst])]
    if v.parity is not None and v.parity.lead:
        blocks.append(wrapped(f"Where to look: {v.parity.lead}", style))
    for title, body in _sections(v, style):
        blocks.append(f"{style(title, 'bold')}\n{body}")
    return "\n".join(blocks)


def _sections(v: Verification, style: Style) -> Iterator[tuple[str, str]]:
    rows = [(r.label, r.before, r.after, r.change) for r in facts.comparisons(v)]
    if rows:
        yield (
            "Speed and memory",
            table(("", "original", "rewritten", "change"), rows, style, right=(1, 2)),
        )
    if v.speed is None:
        yield "Speed", "  not measured\n"
    else:
        yield "How sure", table((), facts.evidence(v), style)
    if v.parity is None:
        yield "Sameness", "  not tested\n"
    else:
        checks = [(c.name, outcome, c.text) for c, outcome in facts.checks(v.parity)]
        title = f"Sameness: {words.SAMENESS_WORDS[v.parity.verdict]} (strongest effect of the rules: {v.parity.effect})"
        yield (
            title,
            table(("check", "outcome", "figures"), checks, style, colours=_OUTCOMES)
            if checks
            else "  no check was made\n",
        )
    if v.diagnosis is not None:
        shares = [(r.label, r.before, r.after) for r in facts.shares(v)]
        found = (
            table(("phase", "original", "rewritten"), shares, style, right=(1, 2)) if shares else ""
        )
        answers = table((), facts.answers(v), style) if facts.answers(v) else ""
        yield (
            "Where the time of a step goes",
            found + wrapped(v.diagnosis.sentence, style, indent=2) + answers,
        )
    if v.contributions:
        rules = facts.contributions(v)
        columns = ("rule", "alone", "among all", "finding", "note")
        yield (
            "By rule: time without the rule ÷ time with it (95 % interval)",
            table(columns, rules, style, right=(1, 2), colours=_FINDINGS),
        )
    for what, trace in facts.errors(v):
        yield f"Failed run ({what})", "".join(f"  {line}\n" for line in trace.splitlines()[-12:])
    if v.warnings:
        yield "Warnings", "".join(wrapped(w, style, "yellow", indent=2) for w in v.warnings)
    yield "How it was measured", table((), facts.measured(v), style)
    if v.environment:
        yield (
            "Environment",
            wrapped(
                ", ".join(f"{k} {value}" for k, value in v.environment.items()), style, indent=2
            ),
        )


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    style: Style,
    *,
    right: Sequence[int] = (),
    colours: dict[str, str] | None = None,
) -> str:
    from rich.table import Table
    from rich.text import Text

    cells = [
        [Text(words.clean(cell), (colours or {}).get(cell, "")) for cell in row] for row in rows
    ]
    table = Table(
        box=None,
        padding=(0, 2, 0, 0),
        pad_edge=False,
        show_header=bool(columns),
        header_style="dim",
    )
    last = max((len(row) for row in cells), default=0) - 1
    for n in range(last + 1):
        header = columns[n] if n < len(columns) else ""
        fold = n in (0, last) or any(len(row[n]) > 40 for row in cells)
        table.add_column(
            header, justify="right" if n in right else "left", overflow="fold", no_wrap=not fold
        )
    for row in cells:
        table.add_row(*row)
    return _printed(table, style, indent=2)


def wrapped(line: str, style: Style, *names: str, indent: int = 0) -> str:
    from rich.text import Text

    return _printed(
        Text(" ".join(words.clean(line).split()), " ".join(names), overflow="fold"), style, indent
    )


def _printed(thing: object, style: Style, indent: int) -> str:
    from rich.console import Console

    out = io.StringIO()
    width = WIDTH - indent
    console = Console(
        file=out,
        width=width,
        force_terminal=style.on,
        no_color=not style.on,
        color_system="standard" if style.on else None,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    console.print(thing)
    return "".join(
        " " * indent + line.rstrip() + "\n" if line.strip() else "\n"
        for line in out.getvalue().splitlines()
    )
