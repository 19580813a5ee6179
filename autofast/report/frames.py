"""Findings for people: each with its line of code, the place underlined, and what is to be known of
it below.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from autofast.model.source import shown_path
from autofast.report.record import Record
from autofast.report.style import Style, expected

WIDTH = 110  # of the code that is shown
_COLOUR = {"fix": "green", "small": "green", "advice": "cyan", "refused": "yellow"}


def frames(records: Iterable[Record], style: Style) -> Iterator[str]:
    """One block of lines for each place; places of a file of which the very same is said share
    one.
    """
    places: dict[tuple[object, ...], list[Record]] = {}
    for record in records:
        at = record.path, record.line, record.column, record.end_line, record.end_column
        places.setdefault(at, []).append(record)
    together: dict[tuple[object, ...], list[list[Record]]] = {}
    for here in places.values():
        said = tuple((r.rule, r.effect, r.message, r.status, _note(r)) for r in here)
        together.setdefault((here[0].path, *said), []).append(here)
    for blocks in together.values():
        yield "".join(line + "\n" for line in _block(blocks, style))


def _block(blocks: Sequence[Sequence[Record]], style: Style) -> Iterator[str]:
    first = blocks[0]
    places = [records[0] for records in blocks]
    width = max(len(_number(place)) for place in places)
    for record in first:
        yield header(record, style)
    bar = style(f"{' ' * width} |", "dim")
    framed = [place for place in places if _is_framed(place)]
    if framed:
        yield bar
    for place in framed:
        code, start, length = _clipped(place)
        yield f"{style(f'{_number(place):>{width}} |', 'dim')} {code}"
        yield f"{bar} {' ' * start}{style('^' * length, 'bold', _COLOUR[place.status])}"
    for record in first:
        name = f"{record.rule}: " if len(first) > 1 else ""
        status = style(record.status, _COLOUR[record.status])
        yield f"{style(' ' * width + ' =', 'dim')} {name}{status}{_note(record)}"


def header(record: Record, style: Style) -> str:
    """``train.py:12:5: rule [effect] message``."""
    place = f"{style(shown_path(record.file), 'bold')}:{record.shown}:{record.column}:"
    return f"{place} {style(record.rule, 'bold')} [{record.effect}] {record.message}"


def _note(record: Record) -> str:
    """What follows the status of a finding: the reason, or what is expected of it."""
    gain = expected(record.gain)
    return f": {record.reason}" if record.reason else f"; {gain}" if gain else ""


def _number(record: Record) -> str:
    return str(record.cell[1] if record.cell else record.line)


def _is_framed(record: Record) -> bool:
    """Whether the place is more than "somewhere in this file"."""
    several = record.end_line > record.line
    return bool(record.code.strip()) and (several or record.end_column > record.column)


def _clipped(record: Record) -> tuple[str, int, int]:
    """The line as it is shown, where the place begins in it, and how long it is."""
    start = record.column - 1
    end = record.end_column - 1 if record.end_line == record.line else len(record.code.rstrip())
    # A tab reaches to the next stop of the whole line.
    stops = [len(record.code[:n].expandtabs(4)) for n in (start, end)]
    whole = record.code.rstrip().expandtabs(4)
    before, place, after = whole[: stops[0]], whole[slice(*stops)], whole[stops[1] :]
    cut = max(0, len(before) - WIDTH // 2) if len(before) + len(place) > WIDTH else 0
    lead = "..." * bool(cut) + before[cut:]
    code = lead + place + after
    if len(code) > WIDTH:
        code = code[: WIDTH - 3] + "..."
    return code, len(lead), max(1, min(len(place), WIDTH - len(lead)))
