"""Kinds of syntax nodes that are asked for together, for ``isinstance``, and what is often asked of
one node.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any, TypeAlias, TypeGuard

from autofast.model.several import any_of, is_numeric

LOOPS = (ast.For, ast.AsyncFor, ast.While)
# What takes the elements of something one by one.
TAKERS = (ast.For, ast.AsyncFor, ast.comprehension)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
DEFS = (ast.FunctionDef, ast.AsyncFunctionDef)
Def: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
WITHS = (ast.With, ast.AsyncWith)
# What ends an iteration, and what ends a call.
TURN_ENDS = (ast.Break, ast.Continue)
CALL_ENDS = (ast.Return, ast.Raise)
# What computes nothing, and so raises nothing.
SILENT = (ast.Pass, *TURN_ENDS, ast.Global, ast.Nonlocal)
FUNCTIONS = (*DEFS, ast.Lambda)
DEFINITIONS = (*DEFS, ast.ClassDef)
ASSIGNMENTS = (ast.Assign, ast.AnnAssign, ast.AugAssign)
# Statements without a block that compute something.
SIMPLE = (*ASSIGNMENTS, ast.Expr, ast.Return)
# What has a ``test``.
TESTS = (ast.If, ast.While, ast.IfExp, ast.Assert)
# What stands for an object by a name: ``x``, ``self.x``.
VARIABLES = (ast.Name, ast.Attribute)
# What an assignment can set.
TARGETS = (*VARIABLES, ast.Subscript)
# What is written as several values in order: ``a, b`` and ``[a, b]``.
SEQUENCES = (ast.Tuple, ast.List)
# ``is`` and ``is not``.
IDENTITY = (ast.Is, ast.IsNot)
# ``in`` and ``not in``.
MEMBERSHIP = (ast.In, ast.NotIn)
# What is written as a collection of its parts.
DISPLAYS = (*SEQUENCES, ast.Dict)
# What runs one of two parts.
CHOICES = (ast.If, ast.IfExp)
# Where other code may run before this goes on.
PAUSES = (ast.Await, ast.Yield, ast.YieldFrom)
IMPORTS = (ast.Import, ast.ImportFrom)


class Text(ast.Constant):
    """The type of a text that is written out."""

    value: str


def is_attribute(node: object, *names: str) -> TypeGuard[ast.Attribute]:
    """``x.name``, with one of these names where there are any."""
    return isinstance(node, ast.Attribute) and (not names or node.attr in names)


def is_constant(node: object, value: Any) -> TypeGuard[ast.Constant]:
    """This very value, written out: 0 is neither False nor 0.0."""
    same = isinstance(node, ast.Constant) and type(node.value) is type(value)
    return same and node.value == value  # type: ignore[attr-defined]


def is_written(node: object, *values: Any) -> TypeGuard[ast.Constant]:
    """One of these values, written out; numbers as Python compares them."""
    return isinstance(node, ast.Constant) and node.value in values


def is_text(node: object) -> TypeGuard[Text]:
    """A text that is written out."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def is_number(node: ast.AST | None) -> bool:
    """A number that is written out, perhaps with a sign."""
    inner = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(inner, ast.Constant) and is_numeric(inner.value)


def is_operation(node: object, *kinds: type[ast.operator]) -> TypeGuard[ast.BinOp]:
    """``a * b``, with one of these operators where there are any."""
    return isinstance(node, ast.BinOp) and isinstance(node.op, kinds or ast.operator)


def is_unary(node: object, kind: type[ast.unaryop]) -> TypeGuard[ast.UnaryOp]:
    """``-a`` or ``not a``."""
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, kind)


def is_all(node: object, kind: type[ast.boolop]) -> TypeGuard[ast.BoolOp]:
    """``a and b`` or ``a or b``."""
    return isinstance(node, ast.BoolOp) and isinstance(node.op, kind)


def has_star(parts: Iterable[ast.AST]) -> bool:
    """Whether one of these arguments or items is ``*rest``, so that their places cannot be
    counted.
    """
    return any_of(parts, ast.Starred)


def is_docstring(statement: ast.AST) -> bool:
    """A text that stands alone."""
    match statement:
        case ast.Expr(value=ast.Constant(value=str())):
            return True
    return False


def is_read(node: ast.AST) -> bool:
    """A variable, attribute or item that is read here, not set or deleted."""
    return isinstance(getattr(node, "ctx", None), ast.Load)


def is_stored(node: ast.AST | None) -> bool:
    """A variable, attribute or item that is set here."""
    return isinstance(getattr(node, "ctx", None), ast.Store)


def positional_parameters(spec: ast.arguments) -> list[ast.arg]:
    """The parameters of a function that may be given by their places."""
    return [*spec.posonlyargs, *spec.args]


def positional_names(spec: ast.arguments) -> list[str]:
    """The names of these."""
    return [parameter.arg for parameter in positional_parameters(spec)]
