"""A verification for programs, and back again. Every field is described in docs/verify-json.md.

The document mirrors the data types of ``autofast.verify``, with what no program should need left
out: standard output, and the prints of models' states. Rows of steps are written as columns. What
is no number in JSON is written as the strings "NaN", "Infinity", "-Infinity".
"""

from __future__ import annotations

import json
import math
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from enum import Enum
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from autofast.model.several import wordset
from autofast.report.json import Json
from autofast.report.verify_words import sentence
from autofast.verify.evidence.record import (
    Call,
    Evaluation,
    Lines,
    Pass,
    Record,
    Run,
    Saved,
    Step,
    Target,
)
from autofast.verify.result import Verification

VERSION = 1  # of the format below; additions do not change it

_LEFT_OUT: dict[type, frozenset[str]] = {
    Verification: frozenset({"facts"}),
    Run: wordset("stdout log files script changed"),
    Record: wordset("""model start saves calls modules lines written dropouts masked scalars masks fed
            mask_rates idle_masks watched evaluations drawn targets"""),
    Evaluation: wordset("model step calls samples sums drew between result squares weights"),
    Pass: wordset("items sketches begun ended made"),
    Saved: wordset("path step tensors plain live"),
    Call: wordset("model samples sums step random order looks laws"),
    Target: wordset("calls numbers laws again same"),
    Lines: wordset("code ran"),
}
_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def report(v: Verification) -> Json:
    """The document as plain lists and dictionaries; all of it is valid JSON."""
    document = {"version": VERSION, "sentence": sentence(v), "passed": v.passed, **plain(v)}
    return {**{k: x for k, x in document.items() if k != "runs"}, "runs": document["runs"]}


def text(v: Verification) -> str:
    """The document, a line for each run."""
    document = report(v)
    runs = [json.dumps(run, allow_nan=False) for run in document.pop("runs")]
    head = json.dumps(document, indent=2, allow_nan=False).removesuffix("\n}")
    lines = ",\n".join(f"    {run}" for run in runs)
    return f'{head},\n  "runs": [{lines and f"{chr(10)}{lines}{chr(10)}  "}]\n}}\n'


def read(document: str | Mapping[str, Any]) -> Verification:
    """The verification that a document was made from. Fields that this version does not know are
    passed over.
    """
    data = json.loads(document) if isinstance(document, str) else document
    if data.get("version") != VERSION:
        raise ValueError(
            f"version {data.get('version')!r} of the format is not known; this autofast reads version {VERSION}"
        )
    made = _read(Verification, data)
    assert isinstance(made, Verification)
    return made


def kept(v: Verification) -> Verification:
    """``v`` as far as it is written."""
    runs = [
        _bare(
            replace(
                run,
                records=tuple(
                    _bare(replace(record, passes=tuple(map(_bare, record.passes))))
                    for record in run.records
                ),
            )
        )
        for run in v.runs
    ]
    return replace(v, runs=tuple(runs), facts=None)


def _bare(thing: Any) -> Any:
    """Without what is left out: those fields are as if they had not been given."""
    left_out = _LEFT_OUT.get(type(thing), frozenset())
    empty = {
        f.name: f.default if f.default_factory is MISSING else f.default_factory()
        for f in fields(thing)
        if f.name in left_out
    }
    return replace(thing, **empty)


def plain(thing: Any) -> Any:
    """What JSON can write, in the place of enumerations, dataclasses and numbers that it has
    not.
    """
    if isinstance(thing, Enum):
        return thing.value
    if isinstance(thing, float):
        if math.isfinite(thing):
            return thing
        if math.isnan(thing):
            return "NaN"
        if thing > 0:
            return "Infinity"
        return "-Infinity"
    if is_dataclass(thing):
        left_out = _LEFT_OUT.get(type(thing), frozenset())
        return {
            f.name: plain(getattr(thing, f.name)) for f in fields(thing) if f.name not in left_out
        }
    if isinstance(thing, Mapping):
        return {str(key): plain(value) for key, value in thing.items()}
    if isinstance(thing, tuple | list):
        return (
            _columns(thing) if thing and isinstance(thing[0], Step) else [plain(x) for x in thing]
        )
    return thing


def _columns(steps: tuple[Step, ...] | list[Step]) -> Json:
    """One list for each field of a step, one for each phase."""
    names = dict.fromkeys(name for step in steps for name in step.phases)
    columns = {
        f.name: [plain(getattr(step, f.name)) for step in steps]
        for f in fields(Step)
        if f.name != "phases"
    }
    return {
        **columns,
        "phases": {name: [plain(step.phases.get(name)) for step in steps] for name in names},
    }


def _rows(columns: Mapping[str, Any]) -> tuple[Step, ...]:
    hints = _hints(Step)
    known = [name for name in columns if name in hints and name != "phases"]
    rows = []
    for n in range(len(columns["index"])):
        phases = {
            name: _read(float, column[n])
            for name, column in columns["phases"].items()
            if column[n] is not None
        }
        rows.append(
            Step(phases=phases, **{name: _read(hints[name], columns[name][n]) for name in known})
        )
    return tuple(rows)


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _read(kind: Any, data: Any) -> Any:
    """``data`` as a value of type ``kind``."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        some = [k for k in inner if k is not type(None)]
        return None if data is None else _read(some[0], data)
    if origin is tuple:
        if inner[0] is Step and isinstance(data, Mapping):
            return _rows(data)
        kinds = inner[:1] * len(data) if inner[-1] is Ellipsis else inner
        return tuple(_read(k, x) for k, x in zip(kinds, data, strict=True))
    if origin is not None and origin is not Literal:  # a mapping
        return {key: _read(inner[1], value) for key, value in data.items()}
    if kind is float:
        return _NUMBERS[data] if isinstance(data, str) else float(data)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(data)
    if is_dataclass(kind) and isinstance(kind, type):
        hints = _hints(kind)
        missing = [
            f.name
            for f in fields(kind)
            if f.name not in data and f.default is MISSING and f.default_factory is MISSING
        ]
        if missing:
            raise ValueError(f"{kind.__name__}: {', '.join(missing)} is missing")
        return kind(
            **{f.name: _read(hints[f.name], data[f.name]) for f in fields(kind) if f.name in data}
        )
    return data
