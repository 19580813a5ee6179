"""Where gradients are unscaled: before what clips or reads them between a backward and its
update.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from autofast.edit.edits import Before, Edit
from autofast.edit.order import Rank
from autofast.facts.gradient_accesses import use_of
from autofast.facts.gradient_events import clipped, optimizers_of
from autofast.facts.scaler import Event
from autofast.flow.positions import (
    block,
    comes_before,
    in_common,
    index,
    is_sure,
    nodes_of,
    statement_at,
)
from autofast.model.events import BranchFrame, Occurrence, Site, inside
from autofast.model.script import Script, Step, Update
from autofast.model.source import at, function_of, source_of
from autofast.rule import Refusal

Named = Callable[[ast.AST], str]  # what the scaler is called at a place; raises :class:`Refusal`


@dataclass(eq=False)
class Unscale:
    """A place that clips or reads gradients before the update: they are unscaled just before
    ``statement``.
    """

    node: ast.AST
    edits: tuple[Edit, ...]
    events: tuple[Event, ...] = ()


def unscales(script: Script, name: Named) -> Iterator[Unscale]:
    """The places that clip or read gradients between a backward and its update."""
    # Update -> the statement before which its gradients are unscaled.
    done: dict[int, ast.stmt] = {}
    for step in script.steps:
        sites = [
            *step.clips,
            *step.grad_reads,
            *(s for s in script.log.of("grad_write") if any(inside(o.stack, step.loop) for o in s)),
        ]
        for site in as_they_run(sites, step):
            if isinstance(site.node, ast.Attribute) and use_of(site.node) in ("", "zero"):
                continue
            before: dict[int, Edit] = {}
            events: list[Event] = []
            for occurrence in site:
                if not inside(occurrence.stack, step.loop):
                    continue
                for statement, update in _updates_after(script, step, site, occurrence):
                    if id(update.node) not in done:
                        events.append(
                            Event("unscale", statement, frozenset(map(id, update.things)))
                        )
                    first = done.setdefault(id(update.node), statement)
                    if function_of(first) is not function_of(update.node):
                        raise Refusal(
                            f"the gradients are read on {at(site.node)}, away from the optimizer"
                        )
                    text = f"{name(first)}.unscale_({source_of(first).segment(update.optimizer)})"
                    before[id(update.node)] = Before(first, text, rank=Rank.UNSCALE)
            if before:
                yield Unscale(site.node, tuple(before.values()), tuple(events))


def as_they_run(sites: Iterable[Site], step: Step) -> list[Site]:
    """In the order in which the script comes to them in a step."""
    first: dict[int, int] = {}
    found = list(sites)
    for site in found:
        orders = [o.order for o in site if inside(o.stack, step.loop)]
        first[id(site)] = min(orders, default=-1)
    return sorted(found, key=lambda site: first[id(site)])


def _updates_after(
    script: Script, step: Step, site: Site, occurrence: Occurrence
) -> list[tuple[ast.stmt, Update]]:
    """The updates that use the gradients which ``site`` reads, each with the statement before which
    they must be unscaled.
    """
    scaled, found, related = False, [], False
    for backward in step.backwards:
        scaled |= any(
            comes_before(o, backward.node, occurrence, site.node)
            for o in backward.site
            if inside(o.stack, step.loop)
        )
    if not scaled:
        return []  # before any backward of the iteration: they are gone or unscaled by then
    for update in step.updates:
        for other in update.site:
            if not inside(other.stack, step.loop):
                continue
            mine, theirs, depth = in_common(occurrence, site.node, other, update.node)
            here = block(theirs)
            distance = index(here, theirs) - index(here, mine)
            if mine is theirs or index(here, mine) < 0 or not _reads_of(script, site, update):
                continue
            if not is_sure(other, depth):
                raise Refusal(
                    f"{at(site.node)} reads gradients in iterations that end without an update"
                )
            related = True
            if distance > 0:
                found.append((distance, mine, update))
    if not related:
        raise Refusal(f"{at(site.node)} reads gradients that no optimizer updates with")
    between = [f for f in found if not _backward_between(step, f[1], f[0])]
    return [(_in_arm(occurrence, site.node, mine), update) for _, mine, update in between]


def _backward_between(step: Step, mine: ast.stmt, distance: int) -> bool:
    """Another backward stands between a clip and an update: the update is not that of the clipped
    gradients alone.
    """
    here = block(mine)
    start = index(here, mine)
    nodes = nodes_of(here[start + 1 : start + distance])
    return any(id(b.node) in nodes for b in step.backwards)


def _reads_of(script: Script, site: Site, update: Update) -> bool:
    """Whether the gradients of a clip may be those of an update; True where that is not known."""
    given = clipped(site) if site.call else None
    things = optimizers_of(script, given) if given is not None else None
    return things is None or any(id(t) in things for t in update.things)


def _in_arm(occurrence: Occurrence, node: ast.AST, statement: ast.stmt) -> ast.stmt:
    """The statement of a place in the arm of ``statement`` (an ``if``) that certainly runs;
    ``statement`` where there is none.
    """
    stack = occurrence.stack
    first = next((n for n, f in enumerate(stack) if f.node is statement), len(stack))
    depth = first
    while depth < len(stack) and isinstance(f := stack[depth], BranchFrame) and f.known:
        depth += 1
    return statement_at(stack, node, depth) if depth > first else statement
