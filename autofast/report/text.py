"""Findings for people: with the code, or on one line each, as editors and terminals know how to
follow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from autofast.model.source import shown_path
from autofast.report.frames import frames
from autofast.report.record import Record
from autofast.report.style import Style, count, expected

_COLOUR = {"fix": "green", "advice": "cyan", "refused": "yellow"}


def finding(record: Record, style: Style) -> str:
    """``train.py:12:5: rule [effect] message (fix)``."""
    place = f"{style(shown_path(record.file), 'bold')}:{record.shown}:{record.column}:"
    status = f"{record.status}: {record.reason}" if record.reason else record.status
    if gain := expected(record.gain):
        status += f"; {gain}"
    return f"{place} {style(record.rule, 'bold')} [{record.effect}] {record.message} {style(f'({status})', _COLOUR[record.status])}"


def full(records: Sequence[Record], style: Style, *, refused: bool = False) -> str:
    """The findings, each with its code. Places left alone only with ``refused``."""
    return "".join(block + "\n" for block in frames(_listed(records, refused), style))


def concise(records: Sequence[Record], style: Style, *, refused: bool = False) -> str:
    """The findings, one line each and nothing else, for programs that follow places."""
    return "".join(finding(record, style) + "\n" for record in _listed(records, refused))


def statistics(records: Sequence[Record], style: Style, *, refused: bool = False) -> str:
    """How often each rule found something, the most frequent first."""
    number = Counter((r.rule, r.status, r.effect) for r in _listed(records, refused))
    rows = sorted(number.items(), key=lambda row: (-row[1], row[0]))
    wide = max((len(rule) for (rule, _, _), _ in rows), default=0)
    lines = [
        f"{n:>5}  {style(rule.ljust(wide), 'bold')}  {style(status.ljust(7), _COLOUR[status])}  {effect}\n"
        for (rule, status, effect), n in rows
    ]
    return "".join(lines) + "\n" * bool(lines)


def _listed(records: Sequence[Record], refused: bool) -> list[Record]:
    return [r for r in records if r.status != "small" and (refused or r.status != "refused")]


def closing(
    records: Sequence[Record], elsewhere: Sequence[Record] = (), *, refused: bool = False
) -> str:
    """The last lines: what was found, what is not shown and how to see it."""
    seen = [r for r in records if r.status != "small"]
    lines = [summary(seen, _listed(records, refused)).rstrip("\n")]
    if any(r.status == "fix" for r in records):
        lines.append("--diff shows the fixes, --fix writes them.")
    if others := [r for r in elsewhere if r.status in ("fix", "advice")]:
        files = count(len({r.path for r in others}), "imported file")
        lines.append(f"{len(others)} more in {files} (--imported shows them).")
    lines += not_worth([r for r in records if r.status == "small"])
    return "".join(line + "\n" for line in lines)


def not_worth(records: Sequence[Record]) -> Iterator[str]:
    """One line about the fixes that are not worth their lines; none where there are none."""
    if records:
        rules = ", ".join(sorted({r.rule for r in records}))
        places = "place is" if len(records) == 1 else "places are"
        lines = "its lines" if len(records) == 1 else "their lines"
        reasons = Counter(r.gain.reason for r in records if r.gain is not None)
        shared = [why for why, n in reasons.items() if 1 < n > len(records) / 2]
        why = "".join(f"; most since {reason}" for reason in shared)
        yield f"{len(records)} more {places} not worth {lines}: {rules} (--exhaustive shows them){why}."


def summary(records: Sequence[Record], listed: Sequence[Record]) -> str:
    """``Found 3 fixes and 1 piece of advice in 2 files; 4 refused (listed with
    --show-refused).``
    """
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
