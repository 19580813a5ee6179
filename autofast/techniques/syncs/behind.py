"""What a step shows is read behind its last work: the statements that read it move there.

``log["loss"] = loss.item()`` between the forward and the backward pass makes the host wait there,
and the device for the host afterwards. Behind ``optimizer.step()`` the numbers are the same, and
one wait is left for all of them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from textwrap import dedent

from autofast.edit.edits import After, Edit, Remove, Rewrite, literal
from autofast.edit.order import Rank
from autofast.flow.loops import loop_of
from autofast.flow.positions import block, index
from autofast.flow.program import Flow
from autofast.flow.reflection import shows_names
from autofast.flow.scopes import loaded_in, stored_in
from autofast.model.calls import short_name
from autofast.model.script import Script
from autofast.model.source import function_of, parent_of, source_of, within
from autofast.rule import Refusal
from autofast.techniques.syncs.common_reads import is_always, joined_reads
from autofast.techniques.syncs.floats import is_float
from autofast.techniques.syncs.freshness import is_fresh
from autofast.techniques.syncs.handlers import catchers
from autofast.techniques.syncs.reads import Read
from autofast.techniques.syncs.waiting import Waiting, works


@dataclass(eq=False)
class Behind:
    """Statements of one block, in their order, that move behind ``work``."""

    work: ast.stmt
    statements: list[ast.stmt] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)


def behind(script: Script, found: Sequence[Read]) -> Iterator[Behind]:
    """The statements that can move behind work of the same step, those with one aim together."""
    aims: dict[int, Behind] = {}
    for read in found:
        unit = _unit(script, read.statement)
        if unit is None:
            continue
        work, moved = _aim(script, unit)
        if work is not None:
            aim = aims.setdefault(id(work), Behind(work))
            aim.statements += [s for s in moved if s not in aim.statements]
    for aim in aims.values():
        here = block(aim.work)
        aim.statements.sort(key=lambda s: index(here, s))
        aim.reads = [r for r in found if any(within(r.node, s) for s in aim.statements)]
        yield aim


def _unit(script: Script, statement: ast.stmt) -> ast.stmt | None:
    """The statement that would move: the one that reads, or the ``if`` or ``for`` around it."""
    here: ast.AST | None = statement
    while isinstance(here, ast.stmt) and Waiting(script).add(here):
        if any(works(script, s) for s in _below(here)):
            return here
        here = parent_of(here)
    return None


def _below(statement: ast.stmt) -> list[ast.stmt]:
    here = block(statement)
    return here[index(here, statement) + 1 :]


def _aim(script: Script, unit: ast.stmt) -> tuple[ast.stmt | None, list[ast.stmt]]:
    """The last work of the block that a statement can run behind, and what moves with it."""
    waiting, moved = Waiting(script), [unit]
    work: ast.stmt | None = None
    with_it: list[ast.stmt] = []
    if shows_names(function_of(unit)) or next(catchers(script, unit, loop_of(unit)), None):
        return None, []
    waiting.add(unit)
    for other in _below(unit):
        if waiting.passes(other):
            if works(script, other):
                work, with_it = other, list(moved)
        elif waiting.add(other):
            moved.append(other)
        else:
            break
    graph = script.analysis(Flow).graph(unit)
    if work is None or not graph.postdominates(work, unit):
        return None, []
    return work, with_it


def edits_of(script: Script, aim: Behind, others: Sequence[Read]) -> list[Edit]:
    """The edits that move the statements; ``others`` are the reads that stay in the same step."""
    edits: list[Edit] = []
    names: dict[int, str] = {}
    for code, holes, mine, more in _shared(script, aim, others):
        edits += [*more, After(aim.work, code, holes=holes, rank=Rank.SHOWN)]
        names |= mine
    for statement in aim.statements:
        code, holes = _text(statement)
        if (number := names.pop(id(holes.get("value")), None)) is not None:
            code, holes = code.replace("{value}", number), {}
        edits += [Remove(statement), After(aim.work, code, holes=holes, rank=Rank.SHOWN)]
    for read in (*aim.reads, *others):
        if id(read.node) in names:
            edits.append(Rewrite(read.node, names[id(read.node)]))
    return edits


def _shared(
    script: Script, aim: Behind, others: Sequence[Read]
) -> Iterator[tuple[str, dict[str, ast.expr], dict[int, str], Sequence[Edit]]]:
    """What is read once before the statements: numbers that several of them want, or all together.

    The statement, its holes, the number of each read (by the id of its node), and imports.
    """
    made = {n for s in aim.statements for n in stored_in(s)}
    plain = [
        r
        for r in aim.reads
        if isinstance(r.statement, (ast.Expr, ast.Assign, ast.AugAssign))
        and any(r.statement is s for s in aim.statements)
        and r.how == "item"
        and is_float(script, r.core)
        and is_always(r.node, r.statement)
        and not loaded_in(r.core) & made
    ]
    below = _below(aim.work)
    same = [
        r
        for r in others
        if (r.key, r.how) in {(p.key, p.how) for p in plain}
        and any(r.statement is s and is_always(r.node, s) for s in below)
        and is_fresh(script, r.core)
    ]
    several = len({r.key for r in plain}) > 2 or any(
        len({r.key for r in plain if r.statement is s}) > 1 for s in aim.statements
    )
    if several:
        with suppress(Refusal):
            every = [*plain, *same]
            joined = joined_reads(script, every, [short_name(r.core) for r in every])
            yield joined.code, joined.holes, joined.numbers, joined.imports
            return
    keys = dict.fromkeys(r.key for r in plain if isinstance(r.core, ast.Name))
    for key in keys:
        mine = [r for r in (*plain, *same) if r.key == key]
        if len(mine) > 1:
            core = mine[0].core
            name = source_of(core).fresh(f"{core.id}_value")  # type: ignore[attr-defined]
            holes = {"core": core}
            yield f"{name} = {mine[0].of('{core}')}", holes, {id(r.node): name for r in mine}, []


def _text(statement: ast.stmt) -> tuple[str, dict[str, ast.expr]]:
    source = source_of(statement)
    match statement:
        case ast.Expr(value=value):
            return "{value}", {"value": value}
        case ast.Assign(targets=[target], value=value):
            return literal(source.segment(target)) + " = {value}", {"value": value}
        case ast.AugAssign(target=target, value=value):
            sign = ast.unparse(ast.AugAssign(target, statement.op, ast.Name("value")))
            return literal(sign.removesuffix("value")) + "{value}", {"value": value}
    start = statement.lineno - 1
    lines = source.lines[start : statement.end_lineno]
    return literal(dedent("\n".join(lines))), {}
