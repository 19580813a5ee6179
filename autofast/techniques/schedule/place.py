"""Where a scheduler that is stepped once an epoch may be stepped instead: after each update.

Both stand in one function: the loop over epochs holds the loop over the batches of one loader,
which makes one update of every batch, and then steps the scheduler.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from autofast.facts.updates.cadence import FRAMEWORKS, check_loader, cut_short, ends_of, inside_bar
from autofast.flow.loops import Loop
from autofast.flow.positions import index_in_block
from autofast.flow.scopes import stored_in
from autofast.model.calls import stands_alone
from autofast.model.events import LoopFrame, Stack
from autofast.model.kinds import is_loader, is_scaler
from autofast.model.roles import Scheduler, Tick, Update
from autofast.model.script import Script
from autofast.model.source import at, is_same_function, parent_of, statement_of, within
from autofast.model.syntax import LOOPS
from autofast.model.values import Thing
from autofast.rule import Refusal

BY_HAND = "give the function that updates the scheduler, and step it there"


@dataclass(frozen=True, eq=False)
class Place:
    """The updates of one epoch.

    Attributes:
        loop: over batches.
        loader: what it goes over, without counters and bars; ``loaders`` are those that this may
            be.
        anchor: the statement after which an update is done.
        gone: the one that steps the scheduler.
        stacks: the paths to the updates.
    """

    loop: ast.For
    loader: ast.expr
    loaders: list[Thing]
    anchor: ast.stmt
    gone: ast.stmt
    stacks: list[Stack]


def place_of(script: Script, tick: Tick, scheduler: Scheduler) -> Place:
    """Where the updates are; raises :class:`Refusal`."""
    gone = statement_of(tick.node)
    epochs = _epochs(script, tick, scheduler)
    update = _update(scheduler)
    anchor = statement_of(update.node)
    loop = parent_of(anchor)
    if not isinstance(loop, ast.For) or index_in_block(epochs.body, loop) < 0:
        raise Refusal(
            f"the update on {at(anchor)} is under a condition, or in another loop or function: {BY_HAND}"
        )
    if index_in_block(epochs.body, loop) > index_in_block(epochs.body, gone):
        raise Refusal("it is stepped before the updates of the epoch")
    for node, around, words in (
        (tick.node, epochs, "its step may be left out"),
        (loop, epochs, "the training of an epoch may be left out"),
        (update.node, loop, "not every batch ends in an update"),
    ):
        if (jump := cut_short(script, node, around)) is not None:
            raise Refusal(f"{words}: {at(jump)} leaves before it")
    for jump in ends_of(script, loop):
        raise Refusal("may end the loop over batches early", jump)
    loader, loaders = _loader(script, loop, update)
    for statement in loop.body[index_in_block(loop.body, anchor) + 1 :]:
        if isinstance(statement, ast.Expr) and _updates_scaler(script, statement.value):
            anchor = statement
    return Place(loop, loader, loaders, anchor, gone, [o.stack for o in update.site])


def _epochs(script: Script, tick: Tick, scheduler: Scheduler) -> Loop:
    """The loop over epochs, each of which steps the scheduler once."""
    if framework := script.framework(FRAMEWORKS):
        raise Refusal(f"{framework} steps schedulers in its own way")
    if other := next((t for t in scheduler.ticks if t.node is not tick.node), None):
        raise Refusal(f"it is also stepped on {at(other)}")
    if tick.given:
        raise Refusal("its step is given a metric or an epoch")
    if tick.unit != "epoch":
        raise Refusal("it is not stepped in a loop over epochs that trains")
    if not stands_alone(tick.node):
        raise Refusal("its step is part of an expression")
    name, epochs = tick.scheduler, parent_of(statement_of(tick.node))
    if not isinstance(epochs, LOOPS) or statement_of(tick.node) not in epochs.body:
        raise Refusal("its step is under a condition, or in another function than the epochs")
    if not is_same_function(scheduler.node, tick.node) or not isinstance(name, ast.Name):
        raise Refusal(f"it is made in another function than it is stepped in: {BY_HAND}")
    if within(scheduler.node, epochs) or name.id in stored_in(epochs):
        raise Refusal("it is made anew in every epoch")
    return epochs


def _update(scheduler: Scheduler) -> Update:
    if not scheduler.updates:
        raise Refusal("the optimizer whose learning rate it sets is not known, or is not stepped")
    first, *more = {u.node: u for u in scheduler.updates}.values()
    if more:
        raise Refusal(f"its optimizer is stepped in several places ({at(more[-1])})")
    if not all(t in scheduler.optimizers for t in first.things):
        raise Refusal("steps other optimizers as well", first)
    if not isinstance(parent_of(first.node), (ast.Expr, ast.Assign)):
        raise Refusal(f"the step on {at(first)} is part of an expression")
    return first


def _updates_scaler(script: Script, node: ast.expr) -> bool:
    return any(is_scaler(o.this) for o in script.log.ways(".update", node))


def _loader(script: Script, loop: ast.For, update: Update) -> tuple[ast.expr, list[Thing]]:
    """The expression of the loader, and the loaders that it may be here."""
    frames = [f for o in update.site for f in o.stack if f.node is loop]
    loaders = {id(x): x for f in frames if isinstance(f, LoopFrame) for x in f.loaders}
    unknown = Refusal(f"how many batches the loop on {at(loop)} has is not known")
    expr = loop.iter
    while not (found := script.values(expr)) or not all(is_loader(t) for t in found):
        if (inner := inside_bar(found)) is None:
            raise unknown
        expr = inner
    for thing in loaders.values():
        loader = script.loader_of(thing)
        if loader is None:
            raise unknown
        check_loader(loader, thing)
    if not {id(t) for t in found} <= loaders.keys() or not isinstance(expr, ast.Name):
        raise unknown
    return expr, list(loaders.values())
