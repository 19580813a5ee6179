"""Findings for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, TypeAlias

from autofast.report.record import Record

VERSION = 1  # of the format below; additions do not change it

Json: TypeAlias = dict[str, Any]


def report(files: Iterable[str], records: Iterable[Record]) -> str:
    """One JSON document: the files that were looked at, and what was found; all paths are relative
    to the root.
    """
    return (
        json.dumps(
            {"version": VERSION, "files": list(files), "findings": [_finding(r) for r in records]},
            indent=2,
        )
        + "\n"
    )


def _finding(record: Record) -> Json:
    return {
        "rule": record.rule,
        "effect": record.effect,
        "path": record.path,
        "line": record.line,
        "column": record.column,
        "end_line": record.end_line,
        "end_column": record.end_column,
        "cell": record.cell and {"number": record.cell[0], "line": record.cell[1]},
        "message": record.message,
        "status": "fix" if record.status == "small" else record.status,
        "reason": record.reason,
        **_worth(record),
    }


def _worth(record: Record) -> Json:
    """Of a fix: whether it is worth its lines, and what it is expected to gain; null where that is
    not asked, as of what is no fix.
    """
    gain = record.gain and {
        "share": round(record.gain.share, 4),
        "reason": record.gain.reason,
        "known": record.gain.known,
        "estimate": not record.gain.measured,
    }
    return {"worth": {"fix": True, "small": False}.get(record.status), "gain": gain}
