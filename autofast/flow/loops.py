"""Loops by their syntax: which repeat a place, and which statements may end an iteration."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.flow.build import catches_all, is_try
from autofast.flow.graph import is_body
from autofast.model.source import contains_kind, function_of, outwards, statement_of
from autofast.model.syntax import CALL_ENDS, FUNCTIONS, LOOPS, TURN_ENDS

Loop = ast.For | ast.AsyncFor | ast.While


def ends_in_first_turn(loop: ast.AST) -> bool:
    """Whether a ``for`` does something in its first turn, and is left at the end of that."""
    match loop:
        case ast.For(body=[_, *_, ast.Return() | ast.Break()]):
            return not contains_kind(loop, ast.Continue)
    return False


def loops_around(node: ast.AST) -> Iterator[Loop]:
    """The loops whose iterations run ``node``, in its own function, innermost first."""
    for here, outer in outwards(node):
        if isinstance(outer, FUNCTIONS) and is_body(here, outer):
            return
        if isinstance(outer, LOOPS) and is_repeated(here, outer):
            yield outer


def unit_of(node: ast.AST) -> ast.AST:
    """The innermost loop or function around: what a reader takes in at one look."""
    return next(loops_around(node), None) or function_of(node)


def loop_of(node: ast.AST) -> Loop | None:
    """The innermost loop whose iterations run the statement of ``node``, in its own function."""
    return next(loops_around(statement_of(node)), None)


def common_loop(a: ast.AST, b: ast.AST) -> Loop | None:
    """The innermost loop whose iterations run the statements of both."""
    around = list(loops_around(statement_of(b)))
    return next((loop for loop in loops_around(statement_of(a)) if loop in around), None)


def is_repeated(part: ast.AST, loop: Loop) -> bool:
    """Whether a child of ``loop`` runs in each iteration: its body, its test, its target."""
    if isinstance(part, ast.stmt):
        return part not in loop.orelse  # mostly short, where bodies are long
    return part is (loop.test if isinstance(loop, ast.While) else loop.target)


def loop_exits(stmt: ast.AST, inner: bool = False) -> Iterator[ast.stmt]:
    """What in ``stmt`` may leave the iteration around it; ``inner``: in a loop inside that one."""
    if isinstance(stmt, CALL_ENDS) or (isinstance(stmt, TURN_ENDS) and not inner):
        yield stmt
    elif isinstance(stmt, LOOPS):
        yield from (s for child in stmt.body for s in loop_exits(child, True))
        yield from (s for child in stmt.orelse for s in loop_exits(child, inner))
    elif not isinstance(stmt, (*FUNCTIONS, ast.expr)):
        yield from (s for child in ast.iter_child_nodes(stmt) for s in loop_exits(child, inner))


def is_caught(stmt: ast.Raise, loop: Loop) -> bool:
    """Whether a handler in the iteration of ``loop`` certainly catches what ``stmt`` raises."""
    for here, outer in outwards(stmt):
        if outer is loop:
            return False
        if is_try(outer) and here in outer.body and any(catches_all(h) for h in outer.handlers):
            return True
    return False
