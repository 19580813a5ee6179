"""The statements of an iteration that belong to the update, and what holds them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import dedent

from autofast.edit.edits import Holes, plain_code
from autofast.facts.updates.events import Event, Iteration
from autofast.flow.positions import index_in_block, nodes_of, place_in, statements_beside
from autofast.flow.scopes import mentions, stored_in
from autofast.model.several import surely
from autofast.model.source import Nodes, ancestors, at, function_of, source_of, within
from autofast.model.syntax import is_read
from autofast.rule import Refusal


@dataclass(eq=False)
class Unit:
    """A statement that does something of the update and nothing else. ``event`` is the last of what
    it does.
    """

    statement: ast.stmt
    events: list[Event]

    @property
    def order(self) -> int:
        return max(e.order for e in self.events)


def repeated(statement: ast.stmt) -> tuple[str, Holes]:
    """Code that does what a statement does."""
    if isinstance(statement, ast.Expr):
        return "{zero}", {"zero": statement.value}
    source = source_of(statement)
    lines = source.lines[statement.lineno - 1 : statement.end_lineno]
    if lines[0][: statement.col_offset].strip():
        raise Refusal(f"gradients are cleared on {at(statement)}, beside something else")
    return plain_code(dedent("\n".join(lines))), {}


def outermost(statement: ast.stmt, loop: ast.AST, iteration: Iteration, kind: str) -> ast.stmt:
    """The loop, ``with`` or ``if`` around it that holds nothing else of the iteration."""
    mine = {e.node for e in iteration.events if e.kind == kind} | {
        c.node for e in iteration.events if e.kind == kind for c in e.calls
    }
    others = {e.node for e in iteration.events if e.kind != kind} | {
        c.node for e in iteration.events if e.kind != kind for c in e.calls
    }
    found = statement
    for outer in ancestors(statement):
        if (
            outer is loop
            or not isinstance(outer, (ast.For, ast.With, ast.If))
            or nodes_of([outer]) & others
            or within(loop, outer)
        ):
            break
        if kind == "zero" and not all(nodes_of([s]) & mine for s in outer.body):
            break
        if isinstance(outer, ast.If) and (
            outer.orelse
            or not all(
                s is found or isinstance(s, ast.Expr) or nodes_of([s]) & mine for s in outer.body
            )
        ):
            break
        found = outer
    return found


def top_of(loop: ast.For, unit: Unit) -> ast.stmt:
    """The statement of the loop's body in which a unit happens."""
    event = unit.events[-1]
    node = event.calls[0].node if event.calls and not within(event.node, loop) else event.node
    if (place := place_in(loop.body, node)) >= 0:
        return loop.body[place]
    raise Refusal(f"where {at(node)} stands in the loop is not known")


def with_preparation(units: list[Unit], iteration: Iteration) -> list[Unit]:
    """With the statements between them that only work out what they need (``skipped = scale >
    scaler.get_scale()``).
    """
    units = list(units)
    events = {e.node for e in iteration.events} | {
        c.node for e in iteration.events for c in e.calls
    }
    while (more := next(_between(units, events), None)) is not None:
        units.append(more)
    return units


def _between(units: list[Unit], events: Nodes) -> Iterator[Unit]:
    inside = nodes_of([u.statement for u in units])
    for unit in units:
        here = statements_beside(unit.statement)
        last = max(index_in_block(here, u.statement) for u in units)
        for statement in here[index_in_block(here, unit.statement) + 1 : max(last, 0)]:
            names = stored_in(statement)
            if (
                statement in inside
                or not isinstance(statement, ast.Assign)
                or not names
                or nodes_of([statement]) & events
            ):
                continue
            loads = [
                n for name in names for n in mentions(function_of(statement), name) if is_read(n)
            ]
            if surely(n in inside for n in loads):
                yield Unit(statement, unit.events)
