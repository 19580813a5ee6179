"""All that a run says, as text: standard output, what it logs to standard error, the texts that it
writes (CSV, JSON, logs), and the numbers that it gives to TensorBoard.

Of a progress bar the last state counts: which of the others are shown is a matter of time. Warnings
with a place in the source and tracebacks are left out, and the numbers of lines by which a log
tells where it was written: a rewrite moves them.
"""

from __future__ import annotations

import csv
import json
import re
from typing import Any

from autofast.verify.evidence.record import Run

MOST = 20_000  # lines of files
_WARNING = re.compile(r"\.py:\d+: \w*Warning\b|^\[W\S* .*\] Warning\b|^Traceback \(")
_UNFINISHED = re.compile(r"^\s+\d+%\|")  # a bar that is taken away when it is full
_PLACE = re.compile(
    r"(?<=\.py)(?::\d+|\(\d+\)|\", line \d+)|(?<=:)(?P<function>[^\W\d]\w*|<module>):\d+(?= - )"
)


def log(text: str) -> str:
    """Standard error without warnings and tracebacks: without their first lines and the indented
    ones behind those.
    """
    kept, left_out = [], False
    for line in text.split("\n"):
        states = [part for part in line.split("\r") if part.strip()]
        if not states:
            continue
        left_out = bool(_WARNING.search(states[-1])) or (left_out and states[-1][0].isspace())
        if not left_out and not _UNFINISHED.match(states[-1]):
            kept.append(states[-1])
    return "\n".join(kept)


def written(run: Run) -> str:
    """The files, a line for each number or line, with the file's name before it; the same of
    TensorBoard's numbers.
    """
    found: list[str] = []
    for name, text in run.files.items():
        if name.endswith((".csv", ".tsv")):
            found += _table(name, text)
        elif name.endswith((".json", ".jsonl")):
            found += _json(name, text)
        else:
            found += _plain(name, text)
    scalars = run.records[0].scalars if run.records else ()
    return "\n".join(found[:MOST] + [_scalar(*one) for one in scalars[:MOST]])


def _scalar(name: str, step: int | None, value: float) -> str:
    return f"TensorBoard: {name}{'' if step is None else f' of {step}'} = {value!r}"


def said(run: Run) -> str:
    """All of it."""
    return _PLACE.sub(
        lambda m: m["function"] or "", "\n".join((run.stdout, written(run), log(run.log)))
    )


def _table(name: str, text: str) -> list[str]:
    try:
        read = csv.reader(text.splitlines(), delimiter="\t" if name[-3] == "t" else ",")
        rows = [row for row in read if row]
    except csv.Error:  # a quote without its end, a cell of more than 131,072 characters
        return _plain(name, text)
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


def _plain(name: str, text: str) -> list[str]:
    return [f"{name}: {line}" for line in text.splitlines()]


def _json(name: str, text: str) -> list[str]:
    try:
        values = [json.loads(text)]
    except ValueError:
        try:
            values = [json.loads(line) for line in text.splitlines() if line.strip()]
        except ValueError:
            return _plain(name, text)
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
