"""A verification for people: one sentence, then tables, a hundred columns wide; colours on a
terminal only."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence

from autofast.report import verify_facts as facts, verify_words as words
from autofast.report.style import Style, short
from autofast.report.verify_words import sentence
from autofast.verify.result import Verification

__all__ = ["sentence", "text"]

WIDTH = 100
_TONES = {"bad": "red", "open": "yellow", "good": "green", "even": "cyan", "none": "dim"}
_COLOURS = {
    "passed": "green",
    "identical": "green",
    "helps": "green",
    "failed": "red",
    "costs": "red",
    "not decided": "yellow",
    "unclear": "yellow",
}


def text(v: Verification, style: Style, verbose: bool = False) -> str:
    """What a decision needs, a screen of it: the finding, the figures of both scripts, what else is
    not as it was, what to do. ``verbose``: every figure and check besides."""
    tones = [tone for _, tone in words.badges(v)]
    colour = next(colour for tone, colour in _TONES.items() if tone in tones)
    blocks = [wrapped(sentence(v), style, "bold", colour)]
    rows = [
        (r.label, r.before, r.after, r.change) for r in facts.comparisons(v) if verbose or r.main
    ]
    if rows:
        blocks.append(table(("", "original", "rewritten", "change"), rows, style, right=(1, 2)))
    for what, trace in facts.errors(v):
        lines = trace.splitlines()
        shown = lines if verbose else [x for x in lines if x.startswith("  ")][-6:] or lines[-6:]
        blocks.append(f"{style(f'Failed run ({what})', 'bold')}\n")
        blocks[-1] += "".join(f"  {short(words.clean(line), WIDTH - 2)}\n" for line in shown)
    for part in facts.details(v) if verbose else facts.by_rule(v):
        said = wrapped(part.said, style, indent=2) if part.said else ""
        rest = table(part.columns, part.rows, style, right=part.right, colours=_COLOURS)
        blocks.append(f"{style(part.title, 'bold')}\n{said}{rest}")
    last = [(label, words.one_line(said, 300)) for label, said in facts.conclusions(v) if said]
    blocks.append(table((), last[: -1 if verbose else None], style))
    return "\n".join(blocks)


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
