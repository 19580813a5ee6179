"""Functions that are one loop, with nothing beside it that a gradient mode changes: a decorator
says for them what a block says for the loop.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.model import names
from autofast.model.events import inside
from autofast.model.kinds import is_loss
from autofast.model.names import LOADER
from autofast.model.script import Script
from autofast.model.source import is_generator, nodes_in, parent_of
from autofast.model.syntax import is_docstring
from autofast.model.values import Func, Method, Ref, Seq, Tensor, Unknown, certainly

PLAIN = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return, ast.Assert, ast.Pass)
# They make and keep no tensors.
HARMLESS = (
    *("builtins.", "numpy.", "random.", "time.", "math.", "logging.", "tqdm.", "cv2.", "PIL."),
    *("os.", "json.", LOADER),
)
# Kinds of events in which a tensor, a network or something unknown takes part.
ASKING = frozenset(
    "forward loss sync move move_model inplace tensor_write grad_read closure call_unknown call_object".split()
)
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
        if statement is loop or is_docstring(statement):
            continue
        if not _is_plain(statement) or not all(_is_harmless(script, e) for e in _inside(statement)):
            return None
    return function


def _is_plain(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.If):
        return all(map(_is_plain, (*statement.body, *statement.orelse)))
    return isinstance(statement, PLAIN)


def _inside(statement: ast.stmt) -> Iterator[ast.expr]:
    return (n for n in nodes_in(statement, ast.expr))


def _is_harmless(script: Script, expr: ast.expr) -> bool:
    """Neither a tensor nor a call that may make, keep or be given one."""
    if any(isinstance(t, Tensor) for t in script.values(expr)):
        return False
    if isinstance(expr, ast.ListComp):
        over = [script.values(g.iter) for g in expr.generators]
        return all(certainly(o, Seq) for o in over)
    if not isinstance(expr, ast.Call):
        return not isinstance(expr, (ast.Await, ast.Lambda, ast.GeneratorExp))
    callees = script.values(expr.func)
    if callees and all(isinstance(t, Func) for t in callees):
        return not script.unread and not _comes_to_torch(script, expr)
    return bool(callees) and all(map(_is_known, callees))


def _comes_to_torch(script: Script, call: ast.Call) -> bool:
    """Whether what a function of the project runs asks anything of torch, or of what is not
    known.
    """
    for (kind, _), site in script.log.each():
        if kind.startswith(HARMLESS) or not any(inside(o.stack, call) for o in site):
            continue
        if "." in kind or kind in ASKING:
            return True
    return False


def _is_known(callee: object) -> bool:
    if isinstance(callee, Method):
        moves = callee.name in MOVES and is_loss(callee.this)
        return moves or (callee.name in MODES and not isinstance(callee.this, Unknown))
    return isinstance(callee, Ref) and (
        callee.name.startswith(HARMLESS) or names.is_loss(callee.name)
    )
