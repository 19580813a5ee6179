"""Findings for machines that show them beside the code of a pull request: GitHub, GitLab, and
Markdown for anywhere else.

Paths are relative to the root, as these want them; places that are left alone are not shown.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from hashlib import sha256

from autofast.report.record import Record
from autofast.report.style import count, expected

_SHOWN = ("fix", "advice")


def github(records: Sequence[Record]) -> str:
    """Workflow commands: each finding becomes a remark on its line."""
    return "".join(line + "\n" for line in map(_command, _shown(records)))


def gitlab(records: Sequence[Record]) -> str:
    """A Code Quality report. Fingerprints stay the same when lines above are added."""
    known: Counter[str] = Counter()
    found = []
    for record in _shown(records):
        same = "\0".join((record.path, record.rule, record.message, record.code.strip()))
        known[same] += 1
        found.append(
            {
                "description": described(record),
                "check_name": record.rule,
                "fingerprint": sha256(
                    f"{same}\0{known[same]}".encode("utf-8", "surrogateescape")
                ).hexdigest(),
                "severity": "minor" if record.status == "fix" else "info",
                "location": {
                    "path": record.path,
                    "lines": {"begin": record.line, "end": record.end_line},
                },
            }
        )
    return json.dumps(found, indent=2) + "\n"


def markdown(records: Sequence[Record]) -> str:
    """A table, for a comment or a job's summary."""
    found = list(_shown(records))
    if not found:
        return "autofast found nothing to make faster.\n"
    files = count(len({record.path for record in found}), "file")
    lines = [f"autofast found {count(len(found), 'place')} to make faster in {files}."]
    lines += ["", "| place | rule | effect | finding |", "| --- | --- | --- | --- |"]
    for record in found:
        place = f"`{record.path}:{record.shown}`"
        told = described(record).replace("|", "\\|")
        lines.append(f"| {place} | `{record.rule}` | {record.effect} | {told} |")
    return "".join(line + "\n" for line in lines)


def described(record: Record) -> str:
    """What was found and what to do: of advice what it says, of a fix what it is expected to
    gain.
    """
    gain = expected(record.gain)
    told = f": {record.reason}" if record.reason else f"; {gain}" if gain else ""
    return f"{record.message} ({record.status}{told})"


def _shown(records: Sequence[Record]) -> Iterator[Record]:
    return (record for record in records if record.status in _SHOWN)


def _command(record: Record) -> str:
    kind = "warning" if record.status == "fix" else "notice"
    where = {"file": record.path, "line": record.line, "endLine": record.end_line}
    if record.line == record.end_line and record.cell is None:  # columns count within one line only
        where |= {"col": record.column, "endColumn": max(record.end_column - 1, record.column)}
    where |= {"title": f"autofast: {record.rule} [{record.effect}]"}
    fields = ",".join(f"{key}={_escaped(str(value), ',:')}" for key, value in where.items())
    return f"::{kind} {fields}::{_escaped(described(record))}"


def _escaped(text: str, also: str = "") -> str:
    """As workflow commands want it: a per cent sign and a number for what has a meaning of its
    own.
    """
    return "".join(f"%{ord(c):02X}" if c in "%\r\n" + also else c for c in text)
