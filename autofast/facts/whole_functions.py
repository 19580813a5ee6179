"""Functions that are one loop, with nothing beside it that a gradient mode changes: a decorator says for them what a block says for the loop."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.model import names
from autofast.model.kinds import is_loss
from autofast.model.names import LOADER
from autofast.model.script import Script
from autofast.model.source import is_generator, parent_of
from autofast.model.values import Method, Ref, Tensor, Unknown

PLAIN = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return, ast.Assert, ast.Pass)
# They make and keep no tensors.
HARMLESS = ("builtins.", "numpy.", "random.", "time.", "math.", "logging.", "tqdm.", LOADER)
MODES = frozenset({"eval", "train", "format", "append", "update", "dataset"})
MOVES = frozenset({"to", "cuda"})


def whole_function(script: Script, loop: ast.AST) -> ast.FunctionDef | None:
    """The function whose only work with tensors is this loop; None where there may be more."""
    function = parent_of(loop)
    if (
        not isinstance(loop, (ast.For, ast.While))
        or not isinstance(function, ast.FunctionDef)
        or function.decorator_list
        or is_generator(function)
        or not isinstance(parent_of(function), (ast.Module, ast.ClassDef))
    ):
        return None
    for statement in function.body:
        if statement is loop or _is_docstring(statement):
            continue
        if not _is_plain(statement) or not all(_is_harmless(script, e) for e in _inside(statement)):
            return None
    return function


def _is_plain(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.If):
        return all(map(_is_plain, (*statement.body, *statement.orelse)))
    return isinstance(statement, PLAIN)


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _inside(statement: ast.stmt) -> Iterator[ast.expr]:
    return (n for n in ast.walk(statement) if isinstance(n, ast.expr))


def _is_harmless(script: Script, expr: ast.expr) -> bool:
    """Neither a tensor nor a call that may make, keep or be given one."""
    if any(isinstance(t, Tensor) for t in script.values(expr)):
        return False
    if not isinstance(expr, ast.Call):
        return not isinstance(expr, (ast.Await, ast.Lambda, ast.ListComp, ast.GeneratorExp))
    callees = script.values(expr.func)
    return bool(callees) and all(map(_is_known, callees))


def _is_known(callee: object) -> bool:
    if isinstance(callee, Method):
        moves = callee.name in MOVES and is_loss(callee.this)
        return moves or (callee.name in MODES and not isinstance(callee.this, Unknown))
    return isinstance(callee, Ref) and (
        callee.name.startswith(HARMLESS) or names.is_loss(callee.name)
    )
