"""Where places stand to each other: in which statement of one block each of them happens, across
function calls.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from autofast.flow.scopes import loaded_in
from autofast.model.events import (
    BranchFrame,
    CallFrame,
    Frame,
    LoopFrame,
    Occurrence,
    Stack,
    TryFrame,
    is_undecided,
)
from autofast.model.several import of_kind
from autofast.model.source import (
    Nodes,
    ancestors,
    block_of,
    function_of,
    is_at_top,
    nodes_in,
    outwards,
    statement_of,
    walk,
    within_any,
    within_statement,
)

# One object stands for all of a kind.
SHARED = (ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.boolop)


def common_frames(a: Sequence[Frame], b: Sequence[Frame]) -> int:
    """How many frames, from the outside, two places have in common."""
    n = 0
    while n < min(len(a), len(b)) and _same(a[n], b[n]):
        n += 1
    return n


def _same(a: Frame, b: Frame) -> bool:
    if type(a) is not type(b) or a.node is not b.node:
        return False
    if isinstance(a, CallFrame) and isinstance(b, CallFrame):
        return a.func.node is b.func.node
    if isinstance(a, BranchFrame) and isinstance(b, BranchFrame):
        return a.arm == b.arm
    if isinstance(a, TryFrame) and isinstance(b, TryFrame):
        return a.part == b.part
    return True


def statement_at(stack: Stack, node: ast.AST, depth: int) -> ast.stmt:
    """The statement in which a place happens, in the block of its first ``depth`` frames."""
    return statement_of(stack[depth].node if depth < len(stack) else node)


def depth_of(stack: Stack, node: ast.AST) -> int:
    """The number of frames down to and with the innermost one of ``node`` (a loop, ``with`` or
    function); 0 where there is none.
    """
    for n in range(len(stack) - 1, -1, -1):
        frame = stack[n]
        if frame.is_of(node):
            return n + 1
    return 0


def node_in(scope: ast.AST, stack: Stack, node: ast.AST) -> ast.AST | None:
    """The node in the code of ``scope`` (a function or module) at which the script is when it comes
    to ``node``; None where it does not come through this code.
    """
    calls = tuple(of_kind(stack, CallFrame))
    start = depth_of(calls, scope)
    if not start and not isinstance(scope, ast.Module):
        return None
    here = (f.node for f in calls[start:] if function_of(f.node) is scope)
    return next(here, node if function_of(node) is scope else None)


def index_in_block(block: list[ast.stmt], stmt: ast.stmt) -> int:
    """Where ``stmt`` stands in ``block``; -1 where it does not."""
    return next((n for n, other in enumerate(block) if other is stmt), -1)


def place_in(here: list[ast.stmt], node: ast.AST) -> int:
    """The index of the statement of ``here`` that a node is, or is in; -1 for none."""
    found = {node, *ancestors(node)}
    return next((n for n, statement in enumerate(here) if statement in found), -1)


def statements_beside(stmt: ast.stmt) -> list[ast.stmt]:
    """The statements beside ``stmt``; empty for one that stands in no block (a case of
    ``match``).
    """
    try:
        return block_of(stmt)
    except ValueError:
        return []


def in_common(
    first: Occurrence, first_node: ast.AST, second: Occurrence, second_node: ast.AST
) -> tuple[ast.stmt, ast.stmt, int]:
    """The statements of two places in the block that both happen in, on the same way to it, and the
    depth of that block.
    """
    depth = common_frames(first.stack, second.stack)
    return (
        statement_at(first.stack, first_node, depth),
        statement_at(second.stack, second_node, depth),
        depth,
    )


def comes_before(
    first: Occurrence, first_node: ast.AST, second: Occurrence, second_node: ast.AST
) -> bool:
    """Whether one place comes before another in the block that both happen in."""
    a, b, _ = in_common(first, first_node, second, second_node)
    here = statements_beside(a)
    return 0 <= index_in_block(here, a) < index_in_block(here, b)


def nodes_of(parts: Iterable[ast.AST]) -> Nodes:
    return {node for part in parts for node in walk(part) if not isinstance(node, SHARED)}


def happens_in(occurrence: Occurrence, node: ast.AST, inside: Nodes) -> bool:
    """Whether an occurrence at ``node`` is in ``inside``, or in a function called there."""
    return node in inside or any(frame.node in inside for frame in occurrence.stack)


def is_sure(occurrence: Occurrence, depth: int = 0) -> bool:
    """It happens whenever the block at ``depth`` runs."""
    return not any(
        (is_undecided(f)) or isinstance(f, (LoopFrame, TryFrame)) for f in occurrence.stack[depth:]
    )


def follows(node: ast.AST, statement: ast.stmt) -> bool:
    """Whether ``node`` stands in a later statement of the same block: it runs after ``statement``,
    and never without it.
    """
    here = statements_beside(statement)
    return place_in(here, node) > index_in_block(here, statement)


def position(node: ast.AST) -> tuple[int, int]:
    """The line and column where a node begins."""
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def in_main_guard(node: ast.AST) -> bool:
    """Whether ``node`` runs only where its file is the script: it stands at module level below ``if
    __name__ == "__main__"``.
    """
    return any(
        isinstance(outer, ast.If)
        and isinstance(outer.test, ast.Compare)
        and isinstance(outer.test.ops[0], ast.Eq)
        and "__name__" in loaded_in(outer.test)
        and not within_any(node, outer.orelse)
        for outer in ancestors(node)
    ) and is_at_top(node)


def computed_before(expr: ast.expr) -> Iterator[ast.expr]:
    """What the statement of an expression computes before it comes to that, as it is written."""
    around = set(within_statement(expr))
    for node in nodes_in(statement_of(expr), ast.expr):
        first = (node.lineno, node.col_offset) < (expr.lineno, expr.col_offset)
        if first and node not in around:
            yield node


def is_always(expr: ast.expr, statement: ast.stmt) -> bool:
    """Whether an expression is computed exactly once when its statement runs: not for each element,
    nor under a condition.
    """
    for inner, outer in outwards(expr):
        if outer is statement:
            return not isinstance(statement, (ast.While, ast.Try)) and not (
                isinstance(statement, ast.Assert) and inner is statement.msg
            )
        match outer:
            case ast.IfExp(test=first) | ast.BoolOp(values=[first, *_]):
                computed = inner is first
            case ast.Compare(left=left, comparators=[right, *_]):
                computed = inner in (left, right)
            case ast.comprehension(iter=first):
                computed = inner is first
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                computed = inner is outer.generators[0]
            case _:
                computed = not isinstance(outer, ast.Lambda)
        if not computed:
            return False
    return False
