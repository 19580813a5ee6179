"""Findings for people: one line each, as editors and terminals know how to follow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from autofast.report.record import Record
from autofast.report.style import Style, count
from autofast.rule import Gain

_COLOUR = {"fix": "green", "advice": "cyan", "refused": "yellow"}


def shown_path(path: Path) -> str:
    """``path`` as the user would type it: relative where it is below the current folder."""
    here = Path.cwd()
    return path.relative_to(here).as_posix() if here == path or here in path.parents else str(path)


def finding(record: Record, style: Style) -> str:
    """``train.py:12:5: rule [effect] message (fix)``."""
    place = f"{style(shown_path(record.file), 'bold')}:{record.line}:{record.column}:"
    status = f"{record.status}: {record.reason}" if record.reason else record.status
    if gain := expected(record.gain):
        status += f"; {gain}"
    return f"{place} {style(record.rule, 'bold')} [{record.effect}] {record.message} {style(f'({status})', _COLOUR[record.status])}"


def report(records: Sequence[Record], style: Style, *, refused: bool = False) -> str:
    """The findings by file, then one line that sums them up. Places left alone are counted, and listed with ``refused``."""
    left = [r for r in records if r.status == "small"]
    records = [r for r in records if r.status != "small"]
    listed = [r for r in records if refused or r.status != "refused"]
    blocks = [
        "\n".join(finding(r, style) for r in group) + "\n"
        for _, group in groupby(listed, key=lambda r: r.path)
    ]
    return "\n".join([*blocks, summary(records, listed)]) + "".join(
        line + "\n" for line in not_worth(left)
    )


def expected(gain: Gain | None) -> str:
    """What a fix is expected to save: ``estimate: about 30 %, waits for data``; empty where nothing is said."""
    if gain is None:
        return ""
    percent = f"about {gain.share:.0%}, ".replace("%", " %") if gain.share >= 0.01 else ""
    return f"estimate: {percent if gain.known else ''}{gain.reason}"


def not_worth(records: Sequence[Record]) -> Iterator[str]:
    """One line about the fixes that are not worth their lines; none where there are none."""
    if records:
        rules = ", ".join(sorted({r.rule for r in records}))
        places = "place is" if len(records) == 1 else "places are"
        lines = "its lines" if len(records) == 1 else "their lines"
        yield f"{len(records)} more {places} not worth {lines}: {rules} (--exhaustive shows them)"


def summary(records: Sequence[Record], listed: Sequence[Record]) -> str:
    """``Found 3 fixes and 1 piece of advice in 2 files; 4 refused (listed with --show-refused).``"""
    number = Counter(r.status for r in records)
    parts = [
        count(number[status], noun)
        for status, noun in (("fix", "fix"), ("advice", "piece of advice"))
        if number[status]
    ]
    if parts:
        line = f"Found {' and '.join(parts)} in {count(len({r.path for r in records if r.status != 'refused'}), 'file')}"
    else:
        line = "Found nothing to make faster"
    if number["refused"]:
        line += f"; {number['refused']} refused" + (
            "" if len(listed) == len(records) else " (listed with --show-refused)"
        )
    return line + ".\n"
