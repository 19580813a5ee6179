"""Findings for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from autofast.report.record import Record

VERSION = 1  # of the format below; additions do not change it


def report(files: Iterable[str], records: Iterable[Record]) -> str:
    """One JSON document: the files that were looked at, and what was found; all paths are relative to the root."""
    return (
        json.dumps(
            {"version": VERSION, "files": list(files), "findings": [_finding(r) for r in records]},
            indent=2,
        )
        + "\n"
    )


def _finding(record: Record) -> dict[str, Any]:
    return {
        "rule": record.rule,
        "effect": record.effect,
        "path": record.path,
        "line": record.line,
        "column": record.column,
        "end_line": record.end_line,
        "message": record.message,
        "status": record.status,
        "reason": record.reason,
    }
