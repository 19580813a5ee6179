"""Where gradients are unscaled: before what clips or reads them between a backward and its
update; and what a script with a scaler does to gradients there.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from autofast.edit.edits import Before, Edit, Edits
from autofast.edit.order import Rank
from autofast.facts.gradient_accesses import gradient_accesses, owning_optimizers, use_of
from autofast.facts.gradient_events import (
    clipped_parameters,
    clips,
    optimizers_of,
    stepped_together,
    zero_grads,
)
from autofast.facts.scaler import Event, Problems, scaler_problems
from autofast.flow.positions import (
    comes_before,
    in_common,
    index_in_block,
    is_sure,
    nodes_of,
    statement_at,
    statements_beside,
)
from autofast.flow.typestate import Events
from autofast.model.calls import receiver_of
from autofast.model.events import BranchFrame, Occurrence, Site, inside
from autofast.model.kinds import is_scaler
from autofast.model.roles import Step, Update
from autofast.model.script import Script
from autofast.model.source import at, is_same_function, source_of
from autofast.model.syntax import VARIABLES
from autofast.model.values import Thing, Unknown, any_of
from autofast.rule import Effect, Finding, Refusal

Named = Callable[[ast.AST], str]  # what the scaler is called at a place; raises :class:`Refusal`


@dataclass(eq=False)
class Unscale:
    """A place that clips or reads gradients before the update: they are unscaled just before
    ``statement``.
    """

    node: ast.AST
    edits: Edits
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
                    if not is_same_function(first, update.node):
                        raise Refusal(
                            f"the gradients are read on {at(site)}, away from the optimizer"
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
            here = statements_beside(theirs)
            distance = index_in_block(here, theirs) - index_in_block(here, mine)
            if (
                mine is theirs
                or index_in_block(here, mine) < 0
                or not _reads_of(script, site, update)
            ):
                continue
            if not is_sure(other, depth):
                raise Refusal("reads gradients in iterations that end without an update", site)
            related = True
            if distance > 0:
                found.append((distance, mine, update))
    if not related:
        raise Refusal("reads gradients that no optimizer updates with", site)
    between = [f for f in found if not _backward_between(step, f[1], f[0])]
    return [(_in_arm(occurrence, site.node, mine), update) for _, mine, update in between]


def _backward_between(step: Step, mine: ast.stmt, distance: int) -> bool:
    """Another backward stands between a clip and an update: the update is not that of the clipped
    gradients alone.
    """
    here = statements_beside(mine)
    start = index_in_block(here, mine)
    nodes = nodes_of(here[start + 1 : start + distance])
    return any(b.node in nodes for b in step.backwards)


def _reads_of(script: Script, site: Site, update: Update) -> bool:
    """Whether the gradients of a clip may be those of an update; True where that is not known."""
    given = clipped_parameters(site) if site.call else None
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


# ----------------------------------------------------------------- what a script with a scaler does
# Problems of following the code, not of the code.
UNSURE = ("unseen", "recursion", "generator", "many", "group")


BUG = "a bug: the gradients are still multiplied by the scale here; unscaling them first changes training to what was meant"


class Known:
    """What a script with a scaler does to gradients."""

    def __init__(self, script: Script):
        self.script = script
        self.clips = {id(e.node): e for e in clips(script, strict=False)}
        touched, self.zeroed = gradient_accesses(script, strict=False)
        steps = {id(u.node): u for s in script.steps for u in s.updates}
        backwards = {id(b.node): b for s in script.steps for b in s.backwards}
        self.updates = list(steps.values())
        self.events = [*touched, *self.clips.values(), *zero_grads(script)]
        self.events += [
            Event("backward" if b.scaled else "plain", b.node) for b in backwards.values()
        ]
        self.events += [
            Event("step" if u.scaled else "plain step", u.node, frozenset(map(id, u.things)))
            for u in self.updates
        ]
        for site in script.methods("unscale_", "update"):
            if not any(map(is_scaler, site.owners)):
                continue
            if site.kind == ".update":
                self.events.append(Event("update", site.node))
            else:
                given = frozenset().union(*(o.args.get(0, "optimizer") for o in site))
                sure = bool(given) and not any_of(given, Unknown)
                self.events.append(
                    Event("unscale", site.node, frozenset(map(id, given)) if sure else None, sure)
                )

    def is_of(self, site: Site, things: list[Thing]) -> bool:
        """Whether a place reads gradients that these optimizers use."""
        if id(site.node) in self.clips:
            mine = self.clips[id(site.node)].things
        elif isinstance(site.node, ast.Attribute):
            found = owning_optimizers(self.script, site.node.value)
            if use_of(site.node) != "read" or isinstance(found, str):
                return False
            mine = found
        else:
            return False
        return mine is None or any(id(t) in mine for t in things)

    def against(self, statement: ast.stmt, update: Update) -> str:
        """What goes wrong on some way where gradients are unscaled before ``statement`` and did not
        before.
        """
        wanted = frozenset(map(id, update.things))
        for things in stepped_together(self.updates):
            if not things & wanted:
                continue
            before = self._problems(things, [])
            after = self._problems(things, [Event("unscale", statement, wanted)])
            for key, (why, _) in after.items():
                if key not in before or key[0] in UNSURE:
                    return why
        return ""

    def _problems(self, things: frozenset[int], before: list[Event]) -> Problems:
        events = Events(self.events, before, self.zeroed)
        return scaler_problems(self.script, events, things, is_new=False)


def forgotten(known: Known, step: Step) -> Iterator[Finding]:
    """Clips between a scaled backward and ``scaler.step(optimizer)`` that no ``unscale_`` comes
    before.
    """
    done: set[object] = set()  # updates whose gradients are unscaled
    for site in as_they_run([*step.clips, *step.grad_reads], step):
        edits: list[Edit] = []
        refusal = ""
        for update in step.updates:
            if not update.scaled or update.node in done or not known.is_of(site, update.things):
                continue
            why, edit = _missing(step, site, update)
            if edit is not None:
                why = known.against(edit.stmt, update)
                edits.append(edit)
            if why or edit is not None:
                done.add(update.node)
            refusal = refusal or why
        if refusal:
            yield Finding(site.node, BUG, refusal=refusal)
        elif edits:
            yield Finding(site.node, BUG, edits=tuple(edits), effect=Effect.RECIPE)


def _missing(step: Step, site: Site, update: Update) -> tuple[str, Before | None]:
    """Why the gradients cannot be unscaled before ``site``, or the edit that does it; neither where
    they are, or need not be.
    """
    for mine in site:
        for theirs in update.site:
            if not inside(mine.stack, step.loop) or not inside(theirs.stack, step.loop):
                continue
            statement, end, depth = in_common(mine, site.node, theirs, update.node)
            here = statements_beside(end)
            if not 0 <= index_in_block(here, statement) < index_in_block(here, end):
                continue
            scaled = [(o, b.node) for b in step.backwards if b.scaled for o in b.site]
            if not any(comes_before(o, node, mine, site.node) for o, node in scaled):
                continue
            if any(
                comes_before(o, s.node, theirs, update.node)
                for s in step.unscales
                for o in s
                if _unscales(o, update)
            ):
                continue
            if not is_sure(theirs, depth):
                return (
                    f"the step on {at(update)} depends on a condition that this does not",
                    None,
                )
            scaler = receiver_of(update.node)
            names = VARIABLES
            if (
                not is_same_function(statement, update.node)
                or not isinstance(scaler, names)
                or not isinstance(update.optimizer, names)
            ):
                return (
                    f"scaler and optimizer are not at hand here, but on {at(update)}",
                    None,
                )
            source = source_of(statement)
            code = f"{source.segment(scaler)}.unscale_({source.segment(update.optimizer)})"
            return "", Before(statement, code, rank=Rank.UNSCALE)
    return "", None


def _unscales(occurrence: Occurrence, update: Update) -> bool:
    """Whether an ``unscale_`` is, or may be, one of the optimizer that ``update`` steps."""
    given = occurrence.args.get(0, "optimizer")
    return not given or any(isinstance(t, Unknown) or t is u for t in given for u in update.things)
