"""What a call looks like in the text; what it calls is asked of the values."""

from __future__ import annotations

import ast
from typing import TypeGuard

from autofast.model.source import parent_of


class MethodCall(ast.Call):
    """The type of ``x.name(...)``."""

    func: ast.Attribute


def is_method(node: object, *names: str) -> TypeGuard[MethodCall]:
    """``x.name(...)``, with one of these names where there are any."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and (not names or node.func.attr in names)
    )


def call_of(node: ast.AST) -> ast.Call | None:
    """The call ``node(...)`` that ``node`` is the function of."""
    parent = parent_of(node)
    return parent if isinstance(parent, ast.Call) and parent.func is node else None


def keyword_of(call: ast.Call, name: str) -> ast.expr | None:
    """What stands for a keyword in the call itself."""
    return next((k.value for k in call.keywords if k.arg == name), None)


def spreads(call: ast.Call) -> bool:
    """Whether it has ``*args`` or ``**options``, so that it is not plain what goes where."""
    return any(isinstance(a, ast.Starred) for a in call.args) or any(
        k.arg is None for k in call.keywords
    )
