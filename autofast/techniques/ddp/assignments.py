"""Which assignment gave a variable the value it has at a place."""

from __future__ import annotations

import ast

from autofast.flow.iterations import loop_of, position, within
from autofast.flow.scopes import mentions
from autofast.model.source import ancestors, function_of, parent_of, statement_of


def assigned(store: ast.Name) -> ast.expr | None:
    parent = parent_of(store)
    if isinstance(parent, ast.Assign) and any(t is store for t in parent.targets):
        return parent.value
    if isinstance(parent, (ast.AnnAssign, ast.NamedExpr)):
        return parent.value
    if isinstance(parent, ast.Tuple) and isinstance(outer := parent_of(parent), ast.Assign) and isinstance(outer.value, ast.Tuple):
        place = next(n for n, e in enumerate(parent.elts) if e is store)
        return outer.value.elts[place] if len(outer.value.elts) == len(parent.elts) else None
    return None


def reaching(name: ast.Name) -> list[ast.Name]:
    """The places that may have given a variable the value it has at ``name``; all where that is not clear."""
    here, loop = statement_of(name), loop_of(name)
    stores = sorted((n for n in mentions(function_of(name), name.id) if isinstance(n.ctx, ast.Store)), key=position)
    own = [n for n in stores if statement_of(n) is here and isinstance(here, (ast.Assign, ast.AnnAssign, ast.AugAssign))]
    before = [n for n in stores if position(n) < position(name) and n not in own]
    for k in range(len(before) - 1, -1, -1):
        plain = not isinstance(parent_of(before[k]), ast.AugAssign)
        if plain and any(a is parent_of(_whole(before[k])) for a in ancestors(name)) and _heads(before[k], name):
            if loop is None or within(before[k], loop):
                return before[k:]
    return stores


def is_recursive(store: ast.Name, value: ast.expr) -> bool:
    """The value may be made of an earlier one that the same assignment made."""
    own = [n for n in ast.walk(value) if isinstance(n, ast.Name) and n.id == store.id]
    return any(store in reaching(n) for n in own)


def _whole(store: ast.Name) -> ast.AST:
    """The statement of an assignment; for the target of a loop something in its body."""
    statement = statement_of(store)
    return statement.body[0] if isinstance(statement, (ast.For, ast.AsyncFor)) and within(store, statement.target) else statement


def _heads(store: ast.Name, name: ast.Name) -> bool:
    """The arm of a condition, or part of a loop, that both are in is one and the same."""
    whole = _whole(store)
    outer = parent_of(whole)
    for field in ("body", "orelse", "finalbody", "handlers"):
        block = getattr(outer, field, None)
        if isinstance(block, list) and any(s is whole for s in block):
            return any(n is s for n in (name, *ancestors(name)) for s in block)
    return False


def index_in(statement: ast.Assign, store: ast.Name) -> int | None:
    """The place of a name in ``loss, hits = ...``."""
    target = statement.targets[0]
    if not isinstance(target, (ast.Tuple, ast.List)) or any(isinstance(e, ast.Starred) for e in target.elts):
        return None
    return next((n for n, e in enumerate(target.elts) if e is store), None)


def is_stored(scope: ast.AST, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) for n in ast.walk(scope))
