"""A search for programs. Every field is described in docs/tune-json.md."""

from __future__ import annotations

import json

from autofast.report import tune_words as words, verify_json
from autofast.report.json import Json
from autofast.tune.result import KEPT, Decision, Tuned
from autofast.tune.setting import Setting

VERSION = 1  # of the format; additions do not change it


def report(t: Tuned) -> Json:
    """The document as plain lists and dictionaries; all of it is valid JSON."""
    confirmation = None
    if t.confirmation is not None:
        confirmation = verify_json.report(t.confirmation)
    return {
        "version": VERSION,
        "sentence": words.sentence(t),
        "script": t.script,
        "command": t.command,
        "kept": _setting(t.found.kept),
        "claim": verify_json.plain(t.found.claim),
        "rules": [_decision(row) for row in t.found.decisions],
        "noise": verify_json.plain(t.noise),
        "interrupted": t.found.interrupted,
        "steps": t.steps,
        "runs": t.runs,
        "seconds": t.seconds,
        "budget": t.budget,
        "diff": dict(t.diff),
        "warnings": list(t.warnings),
        "environment": dict(t.environment),
        "confirmation": confirmation,
    }


def text(t: Tuned) -> str:
    return json.dumps(report(t), indent=2, allow_nan=False) + "\n"


def _setting(setting: Setting) -> Json:
    return {"rules": sorted(setting.rules), "options": dict(setting.values)}


def _decision(row: Decision) -> Json:
    return {
        "rule": row.unit.rule,
        "options": dict(row.unit.setting.values),
        "needs": list(row.unit.needed),
        "kept": row.fate in KEPT,
        "outcome": row.fate.name.lower().replace("_", "-"),
        "alone": verify_json.plain(row.alone),
        "on_top": verify_json.plain(row.on_top),
        "left_out": verify_json.plain(row.left_out),
        "note": row.note,
    }
