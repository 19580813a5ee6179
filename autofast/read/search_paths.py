"""Folders that a script puts on ``sys.path``: ``sys.path.append("core")``, ``sys.path.insert(0,
join(dirname(__file__), "..", "lib"))``.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path

from autofast.flow.scopes import own_nodes
from autofast.model.calls import is_name, short_name
from autofast.model.events import CallFrame, Frame
from autofast.model.several import of_kind, wordset
from autofast.model.source import function_of, source_of
from autofast.model.syntax import is_text

SAME = wordset("abspath realpath normpath expanduser resolve absolute")
PLAIN = wordset("str Path PurePath fspath as_posix")


class NotKnown(Exception):
    """Which folder an expression means is not known."""


def folder(expr: ast.expr, stack: Sequence[Frame], working: Path) -> Path | None:
    """The folder that ``expr`` means, where relative paths start at ``working``; None where that is
    not known.
    """
    try:
        return (working / _path(expr, of_kind(stack, CallFrame), 0)).resolve()
    except NotKnown:
        return None


def _path(expr: ast.expr, calls: list[CallFrame], depth: int) -> Path:
    if depth > 12:
        raise NotKnown
    match expr:
        case ast.Constant(value=str(text)):
            return Path(text)
        case ast.Name(id="__file__"):
            return source_of(expr).path.resolve()
        case ast.Name():
            return _variable(expr, calls, depth)
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            return _path(left, calls, depth + 1) / _path(right, calls, depth + 1)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return Path(f"{_path(left, calls, depth + 1)}{_text(right)}")
        case ast.Attribute(value=value, attr="parent"):
            return _path(value, calls, depth + 1).parent
        case ast.Subscript(
            value=ast.Attribute(value=value, attr="parents"), slice=ast.Constant(value=int(n))
        ):
            return _path(value, calls, depth + 1).parents[n]
        case ast.Subscript(
            value=ast.Call(func=ast.Attribute(attr="split"), args=[value]),
            slice=ast.Constant(value=0),
        ):
            return _path(value, calls, depth + 1).parent
        case ast.Subscript(slice=ast.Constant(value=0)) if _is_path(expr.value):
            if not any(map(_comes_first, source_of(expr).each(ast.Call))):
                return Path()  # the folder of the script
        case ast.Call():
            return _of_call(expr, calls, depth)
    raise NotKnown


def _is_path(expr: ast.expr) -> bool:
    return isinstance(expr, ast.Attribute) and expr.attr == "path" and is_name(expr.value, "sys")


def _comes_first(call: ast.Call) -> bool:
    """``sys.path.insert(0, folder)``."""
    match call:
        case ast.Call(func=ast.Attribute(value=path, attr="insert"), args=[ast.Constant(0), *_]):
            return _is_path(path)
    return False


def _of_call(call: ast.Call, calls: list[CallFrame], depth: int) -> Path:
    name = short_name(call.func)
    parts = [_path(part, calls, depth + 1) for part in call.args]
    if name == "getcwd" or (name == "cwd" and not parts):
        return Path()
    if not parts and isinstance(call.func, ast.Attribute) and name in SAME | PLAIN:
        return _path(call.func.value, calls, depth + 1)
    if name in ("join", "joinpath") and parts:
        first = _path(call.func.value, calls, depth + 1) if name == "joinpath" else Path()  # type: ignore[attr-defined]
        return first.joinpath(*parts)
    if name == "dirname" and parts:
        return parts[0].parent
    if name in SAME | PLAIN and parts:
        return parts[0].joinpath(*parts[1:])
    raise NotKnown


def _text(expr: ast.expr) -> str:
    if is_text(expr):
        return expr.value
    raise NotKnown


def _variable(name: ast.Name, calls: list[CallFrame], depth: int) -> Path:
    """A parameter, as the call gives it, or a variable that is assigned once in the function or in
    the module.
    """
    for scope in dict.fromkeys((function_of(name), source_of(name).tree)):
        if calls and scope is calls[-1].func.node and name.id in calls[-1].given:
            given = calls[-1].given[name.id].expr
            if given is None:
                raise NotKnown
            return _path(given, calls[:-1], depth + 1)
        made = [
            n
            for n in own_nodes(scope)
            if isinstance(n, ast.Assign) and any(is_name(t, name.id) for t in n.targets)
        ]
        if len(made) == 1:
            return _path(made[0].value, calls, depth + 1)
        if made:
            break
    raise NotKnown
