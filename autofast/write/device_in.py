"""The device that several copies go to, as an expression in a function."""

from __future__ import annotations

import ast

from autofast.flow.callgraph import Function
from autofast.flow.scopes import binds, mentions, owner, parameters
from autofast.model.script import Script, Transfer
from autofast.model.source import parent_of, source_of
from autofast.model.values import Inst, Values
from autofast.write.spelling import spelled


def device_in(script: Script, function: Function, moves: list[Transfer]) -> str:
    """What names, in the function, the one device that all moves go to: an attribute of its object,
    or a variable of its file.
    """
    targets = {m.target.values for m in moves if m.target is not None}
    target = targets.pop()
    if targets or len(target) != 1 or isinstance(function, ast.Lambda):
        return ""
    spelt = [e for m in moves if (e := spelled(m.node, m.target)) is not None]
    names = {ast.unparse(e) for e in spelt}
    plain = names.pop() if all(_is_of_file(e, function) for e in spelt) and spelt else ""
    return _own(script, function, target) or ("" if names else plain)


def _own(script: Script, function: Function, target: Values) -> str:
    """``self.device``, which is the same in all objects of the class."""
    this = next((p.arg for p in parameters(function)), "")
    if not isinstance(parent_of(function), ast.ClassDef):
        return ""
    objects = [t for n in mentions(function, this) for t in script.values(n)]
    held = [
        {n for n, v in t.attrs.items() if v == target} if isinstance(t, Inst) else set()
        for t in objects
    ]
    common = set.intersection(*held) if held else set()
    return f"{this}.{min(common, key=lambda n: ('device' not in n, n))}" if common else ""


def _is_of_file(expr: ast.expr, function: Function) -> bool:
    """A variable of the file that the function stands in, which means the same there."""
    if not isinstance(expr, ast.Name) or source_of(expr) is not source_of(function):
        return False
    return isinstance(owner(expr), ast.Module) and not binds(function, expr.id)
