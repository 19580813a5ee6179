"""Findings in the Static Analysis Results Interchange Format 2.1.0, with the changes that would
mend them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from autofast import __version__
from autofast.model.source import Source
from autofast.registry import all_rules
from autofast.report.ci import described
from autofast.report.diff import Change
from autofast.report.json import Json
from autofast.report.record import Record

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_LEVEL = {"fix": "warning", "advice": "note"}


@dataclass(frozen=True)
class Fix:
    """What one rule would change in one script, ``needs`` are the rules that must go with it:
    changes by file, and the new texts.
    """

    rule: str
    needs: tuple[str, ...]
    files: Sequence[tuple[Source, str, Sequence[Change]]]


def report(
    records: Iterable[Record], fixes: Mapping[tuple[object, ...], Fix], errors: Sequence[str] = ()
) -> str:
    """One document. ``fixes`` are by the places of records."""
    found = [r for r in records if r.status in _LEVEL]
    rules = all_rules()
    used = sorted({r.rule for r in found})
    driver = {
        "name": "autofast",
        "version": __version__,
        "rules": [
            {
                "id": name,
                "shortDescription": {"text": rules[name].summary},
                "properties": {"effect": rules[name].effect.name.lower()},
            }
            for name in used
        ],
    }
    invocation: Json = {"executionSuccessful": not errors}
    if errors:
        invocation["toolExecutionNotifications"] = [
            {"level": "error", "message": {"text": error}} for error in errors
        ]
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [invocation],
        "results": [_result(r, used.index(r.rule), fixes.get(r.place)) for r in found],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _result(record: Record, index: int, fix: Fix | None) -> Json:
    region: dict[str, int] = {"startLine": record.line}
    if record.cell is None:  # lines of a notebook's cell stand in strings of the file
        region |= {"startColumn": record.column}
        if (record.end_line, record.end_column) > (record.line, record.column):
            region |= {"endLine": record.end_line, "endColumn": record.end_column}
    result: Json = {
        "ruleId": record.rule,
        "ruleIndex": index,
        "level": _LEVEL[record.status],
        "message": {"text": described(record)},
        "locations": [
            {"physicalLocation": {"artifactLocation": {"uri": _uri(record.path)}, "region": region}}
        ],
        "properties": {"effect": record.effect},
    }
    if fix is not None:
        result["fixes"] = [_fix(fix)]
    return result


def _fix(fix: Fix) -> Json:
    names = " and ".join((fix.rule, *fix.needs))
    return {
        "description": {"text": f"Apply {names} to the whole script"},
        "artifactChanges": [
            {
                "artifactLocation": {"uri": _uri(source.rel)},
                "replacements": [_replacement(source, text, change) for change in changes],
            }
            for source, text, changes in fix.files
        ],
    }


def _replacement(source: Source, text: str, change: Change) -> Json:
    """Whole lines for whole lines. The last line of a file may have no end; what replaces it then
    has one only where lines were added.
    """
    (first, end), new = change.old, text.split("\n")
    lines = source.text.split("\n")
    at_end = end == len(lines)
    inserted = "\n".join(new[slice(*change.new)]) + (
        "" if at_end else "\n" * (change.new[1] > change.new[0])
    )
    if at_end:
        last = {"endLine": end, "endColumn": len(lines[-1]) + 1}
    else:
        last = {"endLine": end + 1, "endColumn": 1}
    return {
        "deletedRegion": {"startLine": first + 1, "startColumn": 1, **last},
        "insertedContent": {"text": inserted.replace("\n", source.newline)},
    }


def _uri(path: str) -> str:
    from urllib.parse import quote

    return quote(path, errors="surrogateescape")
