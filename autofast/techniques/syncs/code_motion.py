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

from autofast.edit.edits import Before, Edit, Remove
from autofast.edit.ignores import is_spared
from autofast.edit.order import Rank
from autofast.flow.loops import loop_of
from autofast.flow.positions import block, index
from autofast.flow.reflection import shows_names
from autofast.flow.scopes import declared, mentions
from autofast.model.script import Script
from autofast.model.source import function_of, within
from autofast.model.syntax import is_read
from autofast.techniques.syncs.steps import is_step, rare_branch
from autofast.techniques.syncs.waiting import may_run_at

NAME = "loss-item-sync"


@dataclass(frozen=True, eq=False)
class Move:
    """A statement that may stand in ``gate`` as well, and the edits that put it there."""

    statement: ast.Assign
    gate: ast.If
    edits: tuple[Edit, ...]


def moves(script: Script) -> dict[int, Move]:
    """All statements of loops over batches that can be moved, by id; without those that a comment
    spares.
    """
    return script.analysis(_movable)


def _movable(script: Script) -> dict[int, Move]:
    found = () if script.unread else _find(script)  # what runs in between may be missing
    return {id(m.statement): m for m in found if not is_spared(m.statement, NAME)}


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
                if gate is not None and may_run_at(script, statement, gate):
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
    if target.id in declared(scope) or shows_names(scope):
        return None
    loop = loop_of(statement)
    uses = [n for n in mentions(scope, target.id) if n is not target]
    gates = {id(gate): gate for n in uses if (gate := rare_branch(n, loop)) is not None}
    gate = next(iter(gates.values()), None)
    here = block(statement)
    if gate is None or len(gates) != 1 or index(here, gate) <= index(here, statement):
        return None
    fine = all(
        is_read(n) and function_of(n) is scope and any(within(n, s) for s in gate.body)
        for n in uses
    )
    return gate if fine else None
