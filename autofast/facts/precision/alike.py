"""Tensors that are made with the dtype of another one: what is 16-bit there is 16-bit here."""

from __future__ import annotations

import ast

from autofast.flow.program import Flow
from autofast.model.calls import is_method
from autofast.model.script import Script

LIKE = frozenset("zeros_like ones_like empty_like full_like".split())
NEW = frozenset("new_zeros new_ones new_empty new_full".split())
MOVES = frozenset(  # methods whose result has the dtype of the tensor
    """view reshape permute transpose t squeeze unsqueeze flatten unflatten contiguous expand
    clone detach""".split()
)
STEPS = 8  # variables and methods that are followed


def made_alike(script: Script, call: ast.AST) -> bool:
    """Whether ``result.index_add_(dim, index, source)`` adds to what was made with the dtype of its
    source: ``source.new_zeros(...)``.
    """
    if not is_method(call) or len(call.args) < 3:
        return False
    made = _definition(script, call.func.value)
    if not isinstance(made, ast.Call) or any(k.arg in ("dtype", None) for k in made.keywords):
        return False
    if not isinstance(made.func, ast.Attribute):
        return False
    model = made.func.value if made.func.attr in NEW else None
    if made.func.attr in LIKE and made.args:
        model = made.args[0]
    if model is None:
        return False
    mine, theirs = _origin(script, model), _origin(script, call.args[2])
    return mine is not None and mine is theirs


def _definition(script: Script, expr: ast.expr) -> ast.AST | None:
    """What a variable holds, where one statement alone gives it its value; else the expression
    itself.
    """
    if not isinstance(expr, ast.Name):
        return expr
    made = script.analysis(Flow).definition(expr)
    return None if made is None else made.value or made.node


def _origin(script: Script, expr: ast.AST | None) -> ast.AST | None:
    """The parameter or expression that a tensor is, but for what only moves or shapes it."""
    for _ in range(STEPS):
        if isinstance(expr, ast.Name):
            expr = _definition(script, expr)
        elif is_method(expr) and expr.func.attr in MOVES:
            expr = expr.func.value
        else:
            return expr
    return None
