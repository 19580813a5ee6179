"""Numbers that are read early and used late, or in few steps: the tensor waits in the variable, and
is read where it is used.

``d_x = output.mean().item()`` in the middle of a step makes the host wait there, and the device
wait for the host afterwards. As ``d_x = output.mean().detach()``, read by ``d_x.item()`` where it
is printed, it costs nothing until then.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from autofast.edit.edits import Before, Edit, Rewrite, Wrap
from autofast.flow.defuse import Definition
from autofast.flow.loops import Loop, loop_of
from autofast.flow.positions import follows, index_in_block, position, statements_beside
from autofast.flow.program import Flow, graph_of
from autofast.flow.reflection import is_spelled
from autofast.flow.scopes import mentions
from autofast.model.calls import is_augmented
from autofast.model.script import Script
from autofast.model.several import grouped, not_none
from autofast.model.source import (
    at,
    contains_kind,
    function_of,
    outwards,
    parent_of,
    statement_of,
    within,
    within_any,
)
from autofast.model.syntax import TURN_ENDS, is_read
from autofast.rule import Refusal
from autofast.techniques.syncs.common_reads import Edited
from autofast.techniques.syncs.deferred import put_off
from autofast.techniques.syncs.kept import kept_template
from autofast.techniques.syncs.liveness import check_hidden, needs_of
from autofast.techniques.syncs.reads import Read, read_template
from autofast.techniques.syncs.sinks import sink_of
from autofast.techniques.syncs.steps import is_step, rare_branch, works_between


# ---------------------------------------------------------------------------------------- variables
@dataclass(eq=False)
class Variable:
    """A variable that holds a number which has just been read, and the places where it is used.

    Attributes:
        tensors: what it is read from, in one or more arms.
        each: uses in every turn; ``seldom``: in few; ``outside``: after the loop.
    """

    name: str
    statement: ast.stmt
    loop: Loop | None
    how: str
    tensors: tuple[ast.expr, ...]
    each: list[ast.Name] = field(default_factory=list)
    seldom: list[ast.Name] = field(default_factory=list)
    outside: list[ast.Name] = field(default_factory=list)


def variable_of(
    script: Script,
    target: ast.Name,
    statement: ast.stmt,
    loop: Loop | None,
    reads: Sequence[Read],
    others: Sequence[ast.Name] = (),
) -> Variable:
    """Where the number in ``target`` goes; raises :class:`Refusal` where that is not certain.

    ``others`` are the targets in the other arms of ``statement``, where that is a condition.
    """
    scope = function_of(target)
    found = Variable(target.id, statement, loop, reads[0].how, tuple(r.core for r in reads))
    check_hidden(script, scope, target.id)
    flow = script.analysis(Flow)
    mine = frozenset(Definition(target.id, n) for n in (target, *others))
    for node in sorted(mentions(scope, target.id), key=position):
        if any(node is d.node for d in mine):
            continue
        if function_of(node) is not scope:
            raise Refusal(f"`{target.id}` is used in a function of its own ({at(node)})")
        reads_too = is_read(node) or is_augmented(node)
        reaching = flow.reaching(node) if reads_too else frozenset()
        if not reaching & mine:
            continue  # it holds another value there
        inside = loop is None or within(node, loop)
        rest = sorted((d.node for d in reaching - mine), key=position)
        begun = [n for n in rest if loop is not None and not within(n, loop)]
        if inside and rest == begun and not follows(node, statement):
            raise Refusal(f"`{target.id}` is used in the next step ({at(node)})")
        if rest or not is_read(node):
            raise Refusal(f"`{target.id}` gets other values too ({at((*rest, node)[0])})")
        if not inside:
            found.outside.append(node)
        else:
            gate = rare_branch(script, node, loop)
            (found.each if gate is None or within(statement, gate) else found.seldom).append(node)
        if is_spelled(node):
            raise Refusal("prints the expression itself", node)
    return found


def read_at_use(script: Script, variable: Variable) -> tuple[list[Edit], bool]:
    """The edits that read a variable, which holds a tensor now, wherever it is used; and whether
    that spares the host a wait.
    """
    away: list[Edited] = []  # statements that are put off
    rest: list[ast.Name] = []
    for statement, uses in grouped((statement_of(n), n) for n in variable.each).items():
        try:
            away.append((statement, _put_off(script, statement, uses, variable)))
        except Refusal:
            rest += uses
    if len(rest) > 1:
        return _read_from(script, variable, rest, away)
    gains = bool(variable.seldom or variable.outside or away)
    if rest:
        gains = works_between(script, variable.statement, statement_of(rest[0])) or _is_conditional(
            rest[0], variable.statement
        )
    read = [
        Wrap(node, read_template(variable.how))
        for node in sorted([*rest, *variable.seldom, *variable.outside], key=position)
    ]
    return [*(e for _, more in away for e in more), *read], gains


def _read_from(
    script: Script,
    variable: Variable,
    rest: list[ast.Name],
    away: list[Edited],
) -> tuple[list[Edit], bool]:
    """The edits for a variable that several places use in each turn: it is read before the first of
    them, and a number from there on.
    """
    inside = sorted([*variable.each, *variable.seldom], key=position)
    first = min(rest, key=position)
    after = inside[inside.index(first) :]
    here = statements_beside(variable.statement)
    between = here[index_in_block(here, variable.statement) + 1 :]
    while True:
        top = next(s for s in here if within(first, s))
        deeper = [
            b
            for b in (getattr(top, "body", []), getattr(top, "orelse", []))
            if isinstance(top, (ast.If, ast.With)) and b
        ]
        inner = next((b for b in deeper if all(within_any(n, b) for n in after)), None)
        if inner is None or variable.outside:
            break
        here = inner
    early = inside[: inside.index(first)]
    before = between[: next(n for n, s in enumerate(between) if within(first, s))]
    if not works_between(script, variable.statement, top) and here is statements_beside(
        variable.statement
    ):
        return [], False
    if variable.outside and any(contains_kind(s, *TURN_ENDS) for s in before):
        return [], False
    order = graph_of(script, first)
    loop = loop_of(variable.statement)
    edits = [
        e for statement, more in away if order.may_follow(first, statement, loop) for e in more
    ]
    edits += [
        Wrap(n, read_template(variable.how))
        for n in early
        if not within(n, top) and not any(within(n, s) for s, _ in away)
    ]
    return [
        *edits,
        Before(top, f"{variable.name} = {read_template(variable.how).format(variable.name)}"),
    ], True


def _is_conditional(node: ast.AST, statement: ast.stmt) -> bool:
    """Whether a place below a statement of the same block is come to under a condition only: ``if
    writer is not None: ...``.
    """
    for here, outer in outwards(node):
        if outer is parent_of(statement):
            return False
        if isinstance(outer, ast.If) and here is not outer.test:
            return True
    return False


def _put_off(
    script: Script, statement: ast.stmt, uses: list[ast.Name], variable: Variable
) -> list[Edit]:
    loop = loop_of(statement)
    if loop is None or not is_step(script, loop):
        raise Refusal("")
    sink = sink_of(
        script, statement, [Read(u, u, variable.how, variable.tensors) for u in uses], loop
    )
    return put_off(script, [sink], loop, needs_of(script, sink, loop))


def delayed_variable(
    script: Script, statement: ast.stmt, read: Read, loop: Loop | None
) -> Variable:
    """``v = loss.item()`` as a variable whose read may be delayed; raises :class:`Refusal`."""
    target = _target(read)
    if target is None:
        raise Refusal("")
    return variable_of(script, target, statement, loop, [read])


def in_arms(found: Sequence[Read]) -> Iterator[tuple[ast.If, list[Read]]]:
    """``if distributed: v = mean(loss).item()``, ``else: v = loss.item()``: each condition all of
    whose arms read a number into one variable.
    """
    made = {r.statement: (target.id, r) for r in found if (target := _target(r)) is not None}
    seen: set[tuple[ast.AST, str]] = set()
    for name, read in made.values():
        condition = _condition(read.statement)
        if condition is None or (condition, name) in seen:
            continue
        seen.add((condition, name))
        arms = [
            [made[s][1] for s in arm if s in made and made[s][0] == name]
            for arm in _arms(condition)
        ]
        if all(len(mine) == 1 and mine[0].how == read.how for mine in arms):
            yield condition, [mine[0] for mine in arms]


def _target(read: Read) -> ast.Name | None:
    """``v`` of ``v = loss.item()``."""
    match read.statement:
        case ast.Assign(targets=[ast.Name() as target], value=value) if value is read.node:
            return target
    return None


def _condition(statement: ast.stmt) -> ast.If | None:
    """The condition whose arm a statement stands in, from its ``if``."""
    outer = parent_of(statement)
    while (
        isinstance(outer, ast.If)
        and isinstance(above := parent_of(outer), ast.If)
        and above.orelse == [outer]
    ):
        outer = above
    return outer if isinstance(outer, ast.If) else None


def _arms(condition: ast.If) -> Iterator[list[ast.stmt]]:
    yield condition.body
    match condition.orelse:
        case [ast.If() as other]:
            yield from _arms(other)
        case rest:
            yield rest


def delayed_arms(
    script: Script, condition: ast.If, reads: Sequence[Read], loop: Loop | None
) -> Variable:
    """The variable that all arms of a condition read into; raises :class:`Refusal`."""
    targets = not_none(map(_target, reads))
    return variable_of(script, targets[0], condition, loop, reads, targets[1:])


def keep_tensor(script: Script, read: Read) -> Edit:
    """The edit by which the tensor is kept instead of the number."""
    return Rewrite(read.node, kept_template(script, read.core), holes={"core": read.core})
