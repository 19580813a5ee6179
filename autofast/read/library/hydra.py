"""What hydra gives ``@hydra.main(...) def main(cfg)``: a file with settings, and those of the
groups that its ``defaults`` name; the command line may choose others.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from autofast.model.source import source_of
from autofast.model.values import NOTHING, Func, Ref, Values, const
from autofast.read.library.loaded_settings import Scalar, parsed, thing_of
from autofast.read.setting_files import YAML, text_of
from autofast.read.state.core import Core

MOST_NESTED = 6
ROOT = "@package _global_"


def of_main(interp: Core, func: Func, parameter: str) -> Values:
    """The settings, where ``parameter`` is the first one of such a function."""
    first = [p.arg for p in func.node.args.args[:1]]
    for written in getattr(func.node, "decorator_list", ()) if first == [parameter] else ():
        if not isinstance(written, ast.Call):
            continue
        if Ref("hydra.main") in interp.at.get(written.func, NOTHING):
            given = dict(zip(("config_path", "config_name"), written.args, strict=False))
            given |= {k.arg: k.value for k in written.keywords if k.arg}
            at = {name: const(interp.at.get(expr, NOTHING)) for name, expr in given.items()}
            path, name = (at.get(key) or "" for key in ("config_path", "config_name"))
            if not isinstance(path, str) or not isinstance(name, str):
                return NOTHING
            if path.endswith(YAML):  # of old versions
                path, _, name = path.rpartition("/")
            folder = source_of(func.node).path.parent / path
            if table := _composed(interp, folder, "", name or "config", 0):
                return thing_of(interp, table, name, (written, folder), written)
    return NOTHING


def _composed(interp: Core, folder: Path, group: str, name: str, depth: int) -> dict[str, Any]:
    """A file of a group, with what its ``defaults`` add before and behind it."""
    path = folder / group / (name if name.endswith(YAML) else f"{name}.yaml")
    inside = interp.project.root in path.resolve().parents
    found = parsed(path) if inside and depth < MOST_NESTED else None
    if not isinstance(found, dict):
        return {}
    file = path.resolve().relative_to(interp.project.root).as_posix()
    table = _noted({k: v for k, v in found.items() if k != "defaults"}, file)
    listed = found.get("defaults")
    out: dict[str, Any] = {}
    rest = [table]
    for part in listed if isinstance(listed, list) else ():
        for key, chosen in part.items() if isinstance(part, dict) else [("", part)]:
            if not isinstance(chosen, Scalar) or not isinstance(chosen.value, str):
                continue  # `logger: null`
            if chosen.value == "_self_":
                _merge(out, rest.pop()) if rest else None
                continue
            below = str(key).removeprefix("optional ").strip("/")
            where = f"{group}/{below}".strip("/")
            if not (more := _composed(interp, folder, where, chosen.value, depth + 1)):
                continue  # it is of hydra, overrides another choice, or is not there
            if ROOT not in (text_of(folder / where / f"{chosen.value}.yaml") or "")[:200]:
                for package in reversed(below.split("/") if below else ()):
                    more = {package: more}
            _merge(out, more)
    for table in rest:
        _merge(out, table)
    return out


def _merge(into: dict[str, Any], table: dict[str, Any]) -> None:
    for key, value in table.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value


def _noted(found: Any, file: str) -> Any:
    """The same, with the file that each setting stands in."""
    if isinstance(found, dict):
        return {key: _noted(value, file) for key, value in found.items()}
    if isinstance(found, list):
        return [_noted(value, file) for value in found]
    return Scalar(found.value, found.line, file)
