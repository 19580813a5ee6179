"""Where a GradScaler is made, and where it is updated."""

from __future__ import annotations

import ast

from autofast.flow.definition_sites import Home, after_all
from autofast.flow.loops import leaving
from autofast.flow.positions import block, index, is_sure, nodes_of, shared, statement_at
from autofast.model.events import BranchFrame, LoopFrame, Occurrence, inside
from autofast.model.script import Backward, Script, Step, Update
from autofast.model.source import ancestors, at, statement_of
from autofast.model.syntax import ASSIGNMENTS, DEFINITIONS, DEFS
from autofast.rule import Refusal

DEFINES = DEFINITIONS


def makes(
    script: Script, home: Home, backwards: list[Backward], updates: list[Update]
) -> tuple[list[ast.stmt], bool]:
    """The statements after which the scaler is made; before which, if the second is True."""
    busy: set[int] = set()
    for site in [b.site for b in backwards] + [u.site for u in updates]:
        busy.add(id(site.node))
        busy.update(id(f.node) for o in site for f in o.stack)
    places = after_all(home.stores, busy)
    early = False
    if home.scope is not None:
        if len(places) > 1:
            raise Refusal(f"the optimizer is set in several blocks, the last on {at(places[-1])}")
        here = block(places[0])
        first = next(
            (n for n, s in enumerate(here) if nodes_of([s]) & busy and not isinstance(s, DEFINES)),
            len(here),
        )
        if first < index(here, places[0]):  # something is trained before the last optimizer is made
            stores = {
                n
                for n, s in enumerate(here[:first])
                if nodes_of([s]) & {id(t) for t in home.stores}
            }
            early = not stores
            places = [here[max(stores, default=first)]]
    made_in = {
        id(f.node)
        for u in updates
        for t in u.things
        for f in getattr(t, "made", ())
        if isinstance(f, LoopFrame)
    }
    for place in places:
        for outer in ancestors(place):
            if isinstance(outer, DEFS):
                break
            if isinstance(outer, (ast.For, ast.While)) and id(outer) not in made_in:
                raise Refusal(
                    f"the optimizer is put into its place again and again, in the loop on {at(outer)}"
                )
    return places if early else [_below_schedulers(script, p, busy) for p in places], early


def _below_schedulers(script: Script, place: ast.stmt, busy: set[int]) -> ast.stmt:
    """The last of the statements directly below that make schedulers, which belong to their
    optimizers; the place itself where there is none.
    """
    made = {id(statement_of(s.node)) for s in script.schedulers}
    here = block(place)
    for below in here[index(here, place) + 1 :]:
        simple = isinstance(below, (ast.Assign, ast.AnnAssign))
        if nodes_of([below]) & busy:
            break
        if simple and id(below) in made:
            place = below
        elif not _does_little(script, below):
            break
    return place


def _does_little(script: Script, statement: ast.stmt) -> bool:
    """A simple statement that has nothing to do with an optimizer, or a condition that never
    holds.
    """
    if isinstance(statement, ast.If):
        return not any(script.reached(s) for s in (*statement.body, *statement.orelse))
    optimizers = {t for optimizer in script.optimizers for t in optimizer.things}
    return isinstance(statement, (*ASSIGNMENTS, ast.Expr)) and not any(
        optimizers & script.values(n) for n in ast.walk(statement)
    )


def ends(script: Script) -> list[ast.stmt]:
    """The statements after which an iteration has made all of its updates."""
    found: dict[int, ast.stmt] = {}
    for step in script.steps:
        inner = {
            id(u.node)
            for s in script.steps
            if s is not step and _is_inside(s, step)
            for u in s.updates
        }
        mine = [u for u in step.updates if id(u.node) not in inner]
        for statement in _last(
            [(u.node, o) for u in mine for o in u.site if inside(o.stack, step.loop) or not o.stack]
        ):
            found[id(statement)] = statement
    return list(found.values())


def _last(places: list[tuple[ast.Call, Occurrence]]) -> list[ast.stmt]:
    nodes = {id(n): n for n, _ in places}
    if len(nodes) <= 1:
        return [statement_of(n) for n in nodes.values()]
    depth = min(shared(a.stack, b.stack) for m, a in places for n, b in places if m is not n)
    statements = [statement_at(o.stack, n, depth) for n, o in places]
    if all(s is statements[0] for s in statements):
        arms: dict[bool, list[tuple[ast.Call, Occurrence]]] = {}
        for node, occurrence in places:
            frame = occurrence.stack[depth] if depth < len(occurrence.stack) else None
            if not isinstance(frame, BranchFrame):
                raise Refusal(f"which update comes last on {at(statements[0])} is not clear")
            arms.setdefault(frame.arm, []).append((node, occurrence))
        return [s for arm in arms.values() for s in _last(arm)]
    here = block(statements[0])
    order = [index(here, s) for s in statements]
    if min(order) < 0:
        raise Refusal(
            f"which update comes last in an iteration is not clear ({at(statements[-1])})"
        )
    if not any(is_sure(o, depth) for _, o in places):
        raise Refusal(f"all updates of an iteration depend on conditions ({at(statements[0])})")
    last = here[max(order)]
    for statement in here[min(order) : max(order) + 1]:
        for jump in (s for s in leaving(statement) if not isinstance(s, ast.Raise)):
            raise Refusal(f"{at(jump)} may leave the iteration between two updates")
    return [last]


def _is_inside(step: Step, other: Step) -> bool:
    return step.loop is not other.loop and any(
        inside(o.stack, other.loop)
        for b in step.backwards
        for o in b.site
        if inside(o.stack, step.loop)
    )
