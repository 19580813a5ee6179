"""All that a run says, as text: standard output, what it logs to standard error, and the texts that it writes (CSV, JSON, logs).

Of a progress bar the last state counts: which of the others are shown is a matter of time. Warnings with a place in the source are left out.
"""

from __future__ import annotations

import csv
import json
import re
from typing import Any

from autofast.verify.record import Run

MOST = 20_000  # lines of files
_PLACE = re.compile(r"\.py[:\"]|Warning\b|^Traceback|^\s+")


def log(text: str) -> str:
    """Standard error without warnings and places in the source."""
    kept = []
    for line in text.split("\n"):
        states = [part for part in line.split("\r") if part.strip()]
        if states and not _PLACE.search(states[-1]):
            kept.append(states[-1])
    return "\n".join(kept)


def written(run: Run) -> str:
    """The files, a line for each number or line, with the file's name before it."""
    found: list[str] = []
    for name, text in run.files.items():
        if name.endswith((".csv", ".tsv")):
            found += _table(name, text)
        elif name.endswith((".json", ".jsonl")):
            found += _json(name, text)
        else:
            found += [f"{name}: {line}" for line in text.splitlines()]
    return "\n".join(found[:MOST])


def said(run: Run) -> str:
    """All of it."""
    return "\n".join((run.stdout, written(run), log(run.log)))


def _table(name: str, text: str) -> list[str]:
    rows = [
        row
        for row in csv.reader(text.splitlines(), delimiter="\t" if name[-3] == "t" else ",")
        if row
    ]
    if not rows:
        return []
    head = [""] * len(rows[0])
    if not any(re.fullmatch(r"\s*[-+]?[\d.]+(?:e[-+]?\d+)?\s*", cell, re.I) for cell in rows[0]):
        head, rows = rows[0], rows[1:]
    return [
        f"{name}: "
        + ", ".join(f"{title} {cell}".strip() for title, cell in zip(head, row, strict=False))
        for row in rows
    ]


def _json(name: str, text: str) -> list[str]:
    try:
        values = [json.loads(text)]
    except ValueError:
        try:
            values = [json.loads(line) for line in text.splitlines() if line.strip()]
        except ValueError:
            return [f"{name}: {line}" for line in text.splitlines()]
    return [f"{name}: {path} {value}" for one in values for path, value in _leaves(one, "")]


def _leaves(value: Any, path: str) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [
            leaf
            for key, entry in value.items()
            for leaf in _leaves(entry, f"{path}.{key}".lstrip("."))
        ]
    if isinstance(value, list):
        return [leaf for entry in value for leaf in _leaves(entry, f"{path}[]")]
    return [(path, value)]
