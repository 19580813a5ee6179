"""Which statements may have made the value of a variable, in the turn of a batch."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from autofast.flow.iterations import FUNCTIONS
from autofast.model.source import block_of, parent_of, statement_of


class Kind(Enum):
    """What a value is of the samples of a batch."""

    ROWS = "a value, or several, for each sample"
    COLUMN = "rows with a new dimension, which arithmetic would spread over the batch"
    OPAQUE = "what a model returns whose code is not followed: rows where a loss takes it as such"
    MEAN = "the mean over the samples"
    SUM = "the sum over the samples"
    FREE = "the same for every batch"
    SIZE = "the number of samples"
    NONE = "nothing: None, or a sum that starts with 0"


Shape = Kind | tuple["Shape", ...]
ROWS = (Kind.ROWS, Kind.COLUMN, Kind.OPAQUE)


@dataclass(eq=False)
class Scope:
    """Code of a function on one way of the script. ``given`` tells what its parameters are; ``loop`` is the loop over batches, where it stands here."""

    function: ast.AST
    given: Mapping[str, Callable[[], Shape]] = field(default_factory=dict)
    loop: ast.For | None = None
    batch: frozenset[str] = frozenset()  # the loop's variables that hold the batch
    local: Mapping[str, Kind] = field(default_factory=dict)  # variables of a comprehension


def reaching(expr: ast.Name, scope: Scope) -> tuple[list[ast.Name], bool]:
    """The stores that may have made this value, last first, and whether one of them certainly did (in this turn of the loop over batches)."""
    found: list[ast.Name] = []
    if isinstance(scope.function, ast.Lambda):
        return found, False
    here: ast.AST = statement_of(expr)
    while True:
        above = _before(here)
        for statement in reversed(above):
            found += _stores(statement, expr.id)
            if _surely_binds(statement, expr.id):
                return found, True
        parent = parent_of(here)
        while parent is not None and not isinstance(parent, (ast.stmt, ast.Module)):
            parent = parent_of(parent)
        if parent is None or parent is scope.function or isinstance(parent, (*FUNCTIONS, ast.Module, ast.ClassDef)):
            return found, False
        if isinstance(parent, (ast.For, ast.While)):
            target = (
                [n for n in ast.walk(parent.target) if isinstance(n, ast.Name) and n.id == expr.id] if isinstance(parent, ast.For) else []
            )
            if parent is scope.loop:
                return found + target, bool(target)
            found += [n for n in _stores(parent, expr.id) if n not in found and n not in target] + target
            if target:
                return found, True
        here = parent


def _before(statement: ast.AST) -> list[ast.stmt]:
    """The statements above this one in its block."""
    try:
        here = block_of(statement)  # type: ignore[arg-type]
    except ValueError:
        return []
    return here[: next(n for n, s in enumerate(here) if s is statement)]


def _stores(statement: ast.stmt, name: str) -> list[ast.Name]:
    if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
        return []
    stores = [n for n in ast.walk(statement) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store)]
    return [n for n in reversed(stores) if not isinstance(parent_of(n), ast.comprehension)]


def _surely_binds(statement: ast.stmt, name: str) -> bool:
    match statement:
        case ast.Assign():
            return any(
                isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) for t in statement.targets for n in ast.walk(t)
            )
        case ast.AnnAssign():
            return statement.value is not None and isinstance(statement.target, ast.Name) and statement.target.id == name
        case ast.If():
            return all(any(_surely_binds(s, name) for s in arm) for arm in (statement.body, statement.orelse))
        case ast.With():
            return any(_surely_binds(s, name) for s in statement.body)
    return False
