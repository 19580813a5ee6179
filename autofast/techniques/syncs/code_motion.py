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

from autofast.edit.edits import Edits, Moved, Remove
from autofast.edit.ignores import is_spared
from autofast.edit.order import Rank
from autofast.facts.sinking import Sinking
from autofast.facts.switches import is_often
from autofast.flow.frequency import rare_arm
from autofast.flow.loops import loop_of
from autofast.flow.positions import index_in_block, statements_beside
from autofast.flow.scopes import loaded_in, stored_in
from autofast.model.events import CallFrame, Site
from autofast.model.script import Script
from autofast.model.several import of_kind
from autofast.model.source import any_within, function_of, nodes_in, source_of, within
from autofast.model.values import Tensor
from autofast.techniques.syncs.steps import (
    InFew,
    catching_statements,
    is_step,
    place_of,
    rare_branch,
)

NAME = "loss-item-sync"


@dataclass(frozen=True, eq=False)
class Move:
    """Statements that may stand in ``gate`` as well, as they use one another all or none of them,
    and the edits that put them there.
    """

    statements: tuple[ast.stmt, ...]
    gate: ast.If
    edits: Edits


def moves(script: Script) -> dict[ast.stmt, Move]:
    """What can be moved in loops over batches and functions, by statement; without what a comment
    spares.
    """
    return script.analysis(movable)


def movable(script: Script) -> dict[ast.stmt, Move]:
    """The same, made anew."""
    found = () if script.unread else _find(script)  # what runs in between may be missing
    return {s: m for m in found for s in m.statements}


def move_around(script: Script, node: ast.AST) -> Move | None:
    """What the statement of ``node`` moves with, where it can be moved."""
    return next((m for s, m in moves(script).items() if within(node, s)), None)


def moved_with(script: Script, site: Site | None) -> tuple[ast.stmt, Move] | None:
    """What a place moves with on every way to it, and by which of these statements: its own, or
    one that calls its function.
    """
    known = moves(script)
    if not known or site is None:
        return None
    ways = [(site.node, *(f.node for f in of_kind(o.stack, CallFrame))) for o in site]
    found = [next((s for s in known if any_within(way, s)), None) for way in ways]
    return (found[0], known[found[0]]) if found and found[0] and all(found) else None


def _find(script: Script) -> Iterator[Move]:
    supposed = {g: g for g in script.analysis(InFew).gates.values()}
    for gate in (*(g for g in script.each(ast.If) if rare_arm(g)), *supposed):
        place = place_of(gate)
        loop = loop_of(place)
        if (is_step(script, loop) if loop is not None else _is_in_function(place)) and rare_branch(
            script, gate.body[0], loop
        ) is gate:
            sinking = Sinking(script, gate, place)
            for group in sinking.groups():
                if any(is_often(script, s, loop) for s in group) and not any(
                    is_spared(s, NAME)
                    or _keeps_graph(script, s)
                    or next(catching_statements(script, s, loop), None) is not None
                    for s in group
                ):
                    yield Move(tuple(group), gate, tuple(_edits(sinking, group, place)))


def _is_in_function(place: ast.stmt) -> bool:
    return not isinstance(function_of(place), ast.Module)


def _keeps_graph(script: Script, statement: ast.stmt) -> bool:
    """Whether a variable that it sets holds what no backward frees until then, which would stay in
    memory: ``loss = loss.item()`` of an evaluation.
    """
    loops = {step.loop for step in script.steps}
    names = loaded_in(statement) & stored_in(statement)
    return loop_of(statement) not in loops and any(
        isinstance(t, Tensor) and t.grad
        for n in nodes_in(statement, ast.Name)
        if n.id in names
        for t in script.values(n)
    )


def _edits(sinking: Sinking, group: list[ast.stmt], place: ast.stmt) -> Iterator[Remove | Moved]:
    first = sinking.gate.body[0]
    for statement in group:
        led, under = _leads(statement, group, place), sinking.under.get(statement)
        yield Remove(statement, moved=True)
        code, holes = ("if {test}:", {"test": under.test}) if under is not None else ("", {})
        yield Moved(first, code, holes, moved=statement, led=led, rank=Rank.MOVED)


def _leads(statement: ast.stmt, group: list[ast.stmt], place: ast.stmt) -> bool:
    """Whether the comment above a statement is about nothing that stays: blank lines, another
    comment or the condition come behind what moves.
    """
    here = statements_beside(statement)
    for other in here[index_in_block(here, statement) + 1 :]:
        above = source_of(other).lines[other.lineno - 2].strip()
        if other is place or not above or above.startswith("#"):
            return True
        if other not in group:
            return False
    return True
