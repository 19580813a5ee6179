"""Statements that prepare, in every step, what is only shown in few: they move into the condition
that shows it.

``info = {"loss": loss.item(), "mean": total / (i + 1)}`` above ``if i % 100 == 0: print(info)``
makes the host wait in every step, and keeps ``total`` from waiting. As the first statement of the
condition it costs nothing in all other steps.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from autofast.edit.edits import Before, Edits, Remove
from autofast.edit.ignores import is_spared
from autofast.edit.order import Rank
from autofast.flow.changes import may_change
from autofast.flow.loops import loop_of
from autofast.flow.positions import index_in_block, statements_beside
from autofast.flow.reflection import namespace_calls
from autofast.flow.scopes import declared, mentions
from autofast.model.script import Script
from autofast.model.several import surely, wordset
from autofast.model.source import (
    ByNode,
    contains_kind,
    function_of,
    nodes_in,
    walk,
    within,
    within_any,
)
from autofast.model.syntax import is_read
from autofast.model.values import Const, Func, Num, Ref, Tensor, certainly
from autofast.techniques.syncs.freshness import is_fresh
from autofast.techniques.syncs.steps import (
    catching_statements,
    is_step,
    place_of,
    rare_branch,
    works_between,
)

NAME = "loss-item-sync"
PLAIN = (
    ast.Name, ast.Constant, ast.Attribute, ast.Subscript, ast.BinOp, ast.UnaryOp, ast.Compare, ast.IfExp, ast.Dict, ast.List, ast.Tuple,
    ast.JoinedStr, ast.FormattedValue, ast.Call, ast.keyword, ast.operator, ast.unaryop, ast.cmpop, ast.expr_context,
)  # fmt: skip
PURE = wordset("float int round abs min max sum pow str len bool dict", "builtins.")


@dataclass(frozen=True, eq=False)
class Move:
    """A statement that may stand in ``gate`` as well, and the edits that put it there."""

    statement: ast.Assign
    gate: ast.If
    edits: Edits


def moves(script: Script) -> ByNode[Move]:
    """All statements of loops over batches that can be moved; without those that a comment
    spares.
    """
    return script.analysis(movable)


def movable(script: Script) -> ByNode[Move]:
    """The same, made anew."""
    found = () if script.unread else _find(script)  # what runs in between may be missing
    return {m.statement: m for m in found if not is_spared(m.statement, NAME)}


def move_around(script: Script, node: ast.AST) -> Move | None:
    """The statement that ``node`` stands in, where that can be moved."""
    return next((m for m in moves(script).values() if within(node, m.statement)), None)


def _find(script: Script) -> Iterator[Move]:
    for statement in script.nodes:
        match statement:
            case ast.Assign(targets=[ast.Name() as target]) if (
                loop := loop_of(statement)
            ) is not None and is_step(script, loop):
                gate = _gate(script, statement, target)
                if (
                    gate is not None
                    and _is_pure(script, statement.value)
                    and _may_wait(script, statement, gate)
                ):
                    code = Before(
                        gate.body[0],
                        f"{target.id} = {{value}}",
                        holes={"value": statement.value},
                        rank=Rank.MOVED,
                    )
                    yield Move(statement, gate, (Remove(statement), code))


def _gate(script: Script, statement: ast.Assign, target: ast.Name) -> ast.If | None:
    """The condition, further below in the block, that holds every use of what the statement
    computes.
    """
    scope = function_of(target)
    if target.id in declared(scope) or namespace_calls(scope):
        return None
    loop = loop_of(statement)
    uses = [n for n in mentions(scope, target.id) if n is not target]
    gates = {gate: gate for n in uses if (gate := rare_branch(script, n, loop)) is not None}
    gate = next(iter(gates.values()), None)
    here = statements_beside(statement)
    if (
        gate is None
        or len(gates) != 1
        or index_in_block(here, place_of(gate)) <= index_in_block(here, statement)
    ):
        return None
    fine = all(is_read(n) and function_of(n) is scope and within_any(n, gate.body) for n in uses)
    return gate if fine else None


def _is_pure(script: Script, value: ast.expr) -> bool:
    """Whether an expression only computes with what is there: it may be computed later, or not at
    all.
    """
    for node in walk(value):
        if not isinstance(node, PLAIN):
            return False
        if isinstance(node, ast.Call) and not _is_pure_call(script, node):
            return False
    return True


def _is_pure_call(script: Script, call: ast.Call) -> bool:
    if script.log.at("sync", call) is not None:
        return True
    match call.func:
        case ast.Attribute(value=ast.Constant(value=str()), attr="format" | "join"):
            return True
        case ast.Attribute(
            value=tensor, attr="detach" | "cpu" | "mean" | "sum" | "size" | "numel" | "dim"
        ):
            return script.must_be(tensor, Tensor)
    found = script.called(call)
    return surely(
        isinstance(t, Ref) and (t.name in PURE or t.name.startswith("math.")) for t in found
    )


def _may_wait(script: Script, statement: ast.Assign, gate: ast.If) -> bool:
    """Whether nothing between the statement and the condition, or in the condition itself, changes
    what it computes with.
    """
    here = statements_beside(statement)
    between: list[ast.AST] = [
        *here[index_in_block(here, statement) + 1 : index_in_block(here, place_of(gate))],
        gate.test,
    ]
    if (
        works_between(script, statement, place_of(gate))
        or next(catching_statements(script, statement, loop_of(statement)), None) is not None
        or may_change(script, between, statement.value) is not None
    ):
        return False
    calls = any(contains_kind(other, ast.Call) for other in between)
    return not calls or all(_is_fixed(script, n) for n in nodes_in(statement.value, ast.Name))


def _is_fixed(script: Script, name: ast.Name) -> bool:
    """Whether a variable holds what cannot change by itself: a number, a text, a function, a tensor
    that nothing changes in place.
    """
    found = script.values(name)
    if certainly(found, Num, Const, Ref, Func):
        return True
    return certainly(found, Tensor, Num, Const) and is_fresh(script, name)
