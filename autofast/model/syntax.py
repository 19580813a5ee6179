"""Kinds of syntax nodes that are asked for together, for ``isinstance``."""

from __future__ import annotations

import ast

LOOPS = (ast.For, ast.AsyncFor, ast.While)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
DEFS = (ast.FunctionDef, ast.AsyncFunctionDef)
FUNCTIONS = (*DEFS, ast.Lambda)
DEFINITIONS = (*DEFS, ast.ClassDef)
ASSIGNMENTS = (ast.Assign, ast.AnnAssign, ast.AugAssign)
# Statements without a block that compute something.
SIMPLE = (*ASSIGNMENTS, ast.Expr, ast.Return)
# What has a ``test``.
TESTS = (ast.If, ast.While, ast.IfExp, ast.Assert)


def is_docstring(statement: ast.AST) -> bool:
    """A text that stands alone."""
    match statement:
        case ast.Expr(value=ast.Constant(value=str())):
            return True
    return False


def is_read(node: ast.AST) -> bool:
    """A variable, attribute or item that is read here, not set or deleted."""
    return isinstance(getattr(node, "ctx", None), ast.Load)


def is_stored(node: ast.AST) -> bool:
    """A variable, attribute or item that is set here."""
    return isinstance(getattr(node, "ctx", None), ast.Store)
