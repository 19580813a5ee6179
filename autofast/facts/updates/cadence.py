"""How a scheduler that is stepped once an epoch lies to the updates of that epoch: in which loop,
how many there are, how they end.

A scheduler may be stepped after every update instead if each epoch certainly makes the same number
of them, and this number can be
written down before the first: every way that the script comes to an update must lead through the
same loop over the same loader.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from autofast.flow.loops import Loop
from autofast.flow.positions import block, index, shared, statement_at
from autofast.flow.program import Flow
from autofast.model.calls import stands_alone
from autofast.model.events import (
    BranchFrame,
    CallFrame,
    Frame,
    GuardFrame,
    LoopFrame,
    Occurrence,
    Stack,
    WithFrame,
    below,
)
from autofast.model.kinds import is_loader, is_scaler
from autofast.model.script import Loader, Scheduler, Script, Tick, Update
from autofast.model.source import at, nodes_in, parent_of, statement_of
from autofast.model.syntax import LOOPS, is_constant
from autofast.model.values import Const, Dict, Ext, Inst, Thing, Values, const
from autofast.rule import Refusal

BARS = ("tqdm.", "rich.progress.", "fastprogress.", "progressbar.", "builtins.enumerate")
FRAMEWORKS = tuple(
    "accelerate lightning hf-trainer deepspeed fabric ignite fastai mmengine composer".split()
)


@dataclass(frozen=True, eq=False)
class Cadence:
    """The updates of one epoch.

    Attributes:
        epochs, loop: the loop over epochs, and the one over batches. loader: what the latter goes
            over, without counters and bars.
        loaders: the loaders that this may be.
        anchor: the statement after which an update is done. updates: their places.
        gone: the statement that steps the scheduler now. guard: it does so only where there is a
            scheduler.
    """

    epochs: Loop
    loop: ast.For
    loader: ast.expr
    loaders: list[Thing]
    anchor: ast.stmt
    updates: list[Update]
    tick: Tick
    gone: ast.stmt
    guard: bool

    @property
    def stacks(self) -> list[Stack]:
        """The paths to the updates and to the scheduler's step."""
        return [o.stack for u in self.updates for o in u.site] + [o.stack for o in self.tick.site]


def cadence_of(script: Script, tick: Tick, schedulers: list[Scheduler]) -> Cadence:
    """The cadence of the updates below ``tick``; raises :class:`Refusal`."""
    _check_tick(script, tick, schedulers)
    updates = list({id(u.node): u for s in schedulers for u in s.updates}.values())
    wanted = {id(t) for s in schedulers for t in s.optimizers}
    if not updates:
        raise Refusal("the optimizer whose learning rate it sets is not known, or is not stepped")
    for update in updates:
        if any(id(t) not in wanted for t in update.things):
            raise Refusal(f"{at(update.node)} steps other optimizers as well")
        if not isinstance(parent_of(update.node), (ast.Expr, ast.Assign)):
            raise Refusal(f"the step on {at(update.node)} is part of an expression")
    epochs = _epochs(tick)
    gone, guard = _at_epoch_end(script, tick, epochs)
    loop = _batches(script, updates, epochs)
    _in_order(script, tick, updates, epochs)
    anchor = _anchor(script, updates, loop)
    loader, loaders = _loader(script, loop, updates)
    return Cadence(epochs, loop, loader, loaders, anchor, updates, tick, gone, guard)


def _check_tick(script: Script, tick: Tick, schedulers: list[Scheduler]) -> None:
    if framework := next((f for f in FRAMEWORKS if f in script.frameworks), None):
        raise Refusal(f"{framework} steps schedulers in its own way")
    for scheduler in schedulers:
        if other := next((t for t in scheduler.ticks if t.node is not tick.node), None):
            raise Refusal(f"it is also stepped on {at(other.node)}")
    if tick.given:
        raise Refusal("its step is given a metric or an epoch")
    if tick.unit != "epoch":
        raise Refusal("it is not stepped in a loop over epochs that trains")
    if not stands_alone(tick.node):
        raise Refusal("its step is part of an expression")


# ---------------------------------------------------------------------------------------- the epoch
def _turning(frame: Frame) -> bool:
    """A loop that goes on and on, not one over a few known values."""
    return isinstance(frame, LoopFrame) and not frame.unrolled


def _epochs(tick: Tick) -> Loop:
    found: dict[int, Loop] = {}
    for occurrence in tick.site:
        loop = next((f.node for f in reversed(occurrence.stack) if _turning(f)), None)
        if not isinstance(loop, LOOPS):
            raise Refusal("it is not stepped in a loop over epochs")
        found[id(loop)] = loop
    if len(found) != 1:
        raise Refusal("it is stepped in several loops")
    return next(iter(found.values()))


def _path(frames: Stack) -> tuple[object, ...]:
    """What tells two paths through an epoch apart."""
    return tuple(
        (id(f.node), f.turn if isinstance(f, LoopFrame) else 0)
        for f in frames
        if isinstance(f, (CallFrame, LoopFrame))
    )


def _straight(frames: Stack, words: str) -> None:
    """All of ``frames`` are passed in every epoch."""
    for frame in frames:
        if isinstance(frame, (CallFrame, WithFrame, GuardFrame)) or (
            isinstance(frame, BranchFrame) and frame.known
        ):
            continue
        if isinstance(frame, LoopFrame) and frame.unrolled:
            continue
        if isinstance(frame, BranchFrame):
            why = "depends on a condition"
        elif isinstance(frame, LoopFrame):
            why = "is repeated"
        else:
            why = "may be cut off"
        raise Refusal(f"{words} {why} ({at(frame.node)})")


def _at_epoch_end(script: Script, tick: Tick, epochs: Loop) -> tuple[ast.stmt, bool]:
    """The statement of a step that every epoch makes once, and whether it asks first whether there
    is a scheduler.
    """
    paths = {}
    for occurrence in tick.site:
        rest = below(occurrence.stack, epochs)
        guarded = [f for f in rest if isinstance(f, BranchFrame) and _asks_for(f, tick.scheduler)]
        _straight(tuple(f for f in rest if f not in guarded), "its step")
        paths[_path(rest)] = occurrence
        _not_left_before(script, rest, tick.node, epochs, "its step may be left out")
    if len(paths) != 1:
        raise Refusal("it is stepped more than once in an epoch")
    statement = statement_of(tick.node)
    around = parent_of(statement)
    guard = (
        isinstance(around, ast.If)
        and _is_test_of(around.test, tick.scheduler)
        and any(s is statement for s in around.body)
    )
    alone = guard and isinstance(around, ast.If) and len(around.body) == 1 and not around.orelse
    return (around if alone and isinstance(around, ast.If) else statement), guard


def _asks_for(frame: BranchFrame, scheduler: ast.expr) -> bool:
    return isinstance(frame.node, ast.If) and frame.arm and _is_test_of(frame.node.test, scheduler)


def _is_test_of(test: ast.expr, scheduler: ast.expr) -> bool:
    """``if scheduler:``, ``if scheduler is not None:``"""
    if (
        isinstance(test, ast.Compare)
        and len(test.ops) == 1
        and isinstance(test.ops[0], (ast.IsNot, ast.NotEq))
    ):
        if is_constant(test.comparators[0], None):
            test = test.left
    return ast.dump(test) == ast.dump(scheduler)


def _in_order(script: Script, tick: Tick, updates: list[Update], epochs: ast.AST) -> None:
    """The updates of an epoch come before its step of the scheduler."""
    graphs = script.analysis(Flow)
    for update in updates:
        for first in update.site:
            for second in tick.site:
                a, b = below(first.stack, epochs), below(second.stack, epochs)
                depth = shared(a, b)
                mine, theirs = (
                    statement_at(a, update.node, depth),
                    statement_at(b, tick.node, depth),
                )
                graph = graphs.graph(theirs)
                if mine is theirs or not (
                    graph.dominates(mine, theirs) or graph.dominates(theirs, mine)
                ):
                    raise Refusal(
                        f"whether it is stepped after the updates of the epoch is not clear ({at(theirs)})"
                    )
                if graph.dominates(theirs, mine):
                    raise Refusal("it is stepped before the updates of the epoch")


def _not_left_before(script: Script, frames: Stack, node: ast.AST, loop: Loop, words: str) -> None:
    """Nothing before ``node`` ends the iteration of ``loop``, or a function on the way from
    there.
    """
    scope: Loop | None = loop
    for here in (*(f.node for f in frames if isinstance(f, CallFrame)), node):
        if (exit_ := cut_short(script, here, scope)) is not None:
            raise Refusal(f"{words}: {at(exit_)} leaves before it")
        scope = None


def cut_short(script: Script, node: ast.AST, loop: Loop | None) -> ast.stmt | None:
    """A ``continue`` that may end the iteration of ``loop``, or without one a ``return`` that may
    end the function, before ``node``.
    """
    found = script.analysis(Flow).graph(node).leaving_before(node, loop)
    return next(
        (s for s in found if isinstance(s, ast.Return if loop is None else ast.Continue)), None
    )


def ends_of(script: Script, loop: Loop) -> list[ast.stmt]:
    """The ``break`` and ``return`` statements that end a loop."""
    return [
        s
        for s in script.analysis(Flow).graph(loop).exits(loop)
        if isinstance(s, (ast.Break, ast.Return))
    ]


# -------------------------------------------------------------------------------------- the batches
def _batches(script: Script, updates: list[Update], epochs: Loop) -> ast.For:
    """The one loop over batches that makes all updates of an epoch."""
    steps = {id(s.loop) for s in script.steps}
    found: dict[int, ast.AST] = {}
    paths: dict[tuple[object, ...], Occurrence] = {}
    for update in updates:
        for occurrence in update.site:
            if not any(f.node is epochs for f in occurrence.stack):
                raise Refusal(
                    f"the optimizer is also stepped outside the epochs of the scheduler ({at(update.node)})"
                )
            rest = below(occurrence.stack, epochs)
            cut = next(
                (
                    n
                    for n in range(len(rest) - 1, -1, -1)
                    if id(rest[n].node) in steps and isinstance(rest[n], LoopFrame)
                ),
                None,
            )
            if cut is None:
                raise Refusal(f"the step on {at(update.node)} is in no loop over batches")
            loop = rest[cut].node
            found[id(loop)] = loop
            _straight(rest[:cut], "the training of an epoch")
            _not_left_before(
                script, rest[:cut], loop, epochs, "the training of an epoch may be left out"
            )
            paths[_path(rest[:cut])] = occurrence
    if len(found) != 1 or len(paths) != 1:
        raise Refusal("the optimizer is stepped in several loops of an epoch")
    loop = next(iter(found.values()))
    if not isinstance(loop, ast.For):
        raise Refusal(f"how many batches the loop on {at(loop)} has is not known")
    for jump in ends_of(script, loop):
        raise Refusal(f"{at(jump)} may end the loop over batches early")
    return loop


def _anchor(script: Script, updates: list[Update], loop: ast.For) -> ast.stmt:
    """The statement after which the update of a batch is done."""
    places = {}
    for update in updates:
        for occurrence in update.site:
            rest = below(occurrence.stack, loop)
            _not_left_before(script, rest, update.node, loop, "not every batch ends in an update")
            way = tuple((id(f.node), getattr(f, "arm", False)) for f in rest)
            places[id(update.node), way] = (update.node, rest)
    anchor = _once(list(places.values()))
    here = block(anchor)
    for statement in here[index(here, anchor) + 1 :]:
        if isinstance(statement, ast.Expr) and _updates_scaler(script, statement.value):
            anchor = statement
    return anchor


def _updates_scaler(script: Script, node: ast.expr) -> bool:
    site = script.log.at(".update", node)
    return site is not None and any(o.this is not None and is_scaler(o.this) for o in site)


def _once(places: list[tuple[ast.Call, Stack]], depth: int = 0) -> ast.stmt:
    """The statement that makes exactly one of the updates whenever it runs."""
    while True:
        frames = [rest[depth] if depth < len(rest) else None for _, rest in places]
        first = frames[0]
        if all(f is None for f in frames):
            if len({id(node) for node, _ in places}) > 1:
                raise Refusal(
                    f"the optimizer is stepped several times for one batch ({at(places[-1][0])})"
                )
            return statement_of(places[0][0])
        if first is None or any(f is None or f.node is not first.node for f in frames):
            raise Refusal(
                f"the optimizer is stepped in several places for one batch ({at(places[-1][0])})"
            )
        arms = {getattr(f, "arm", None) for f in frames}
        if len(arms) > 1:
            for arm in arms:
                _once(
                    [
                        p
                        for p, f in zip(places, frames, strict=True)
                        if getattr(f, "arm", None) == arm
                    ],
                    depth + 1,
                )
            return statement_of(first.node)
        if isinstance(first, BranchFrame) and not all(
            isinstance(f, BranchFrame) and f.known for f in frames
        ):
            raise Refusal(
                f"the optimizer is stepped under a condition, not after every batch ({at(first.node)})"
            )
        if not isinstance(first, (CallFrame, WithFrame, GuardFrame, BranchFrame)):
            raise Refusal(
                f"how often the optimizer is stepped for one batch is not known ({at(first.node)})"
            )
        depth += 1


# ---------------------------------------------------------------------------- the number of batches
def _loader(script: Script, loop: ast.For, updates: list[Update]) -> tuple[ast.expr, list[Thing]]:
    """The expression of the loader, and the loaders that it may be here."""
    loaders = {
        id(x): x
        for u in updates
        for o in u.site
        for f in o.stack
        if isinstance(f, LoopFrame) and f.node is loop
        for x in f.loaders
    }
    expr = loop.iter
    unknown = f"how many batches the loop on {at(loop)} has is not known"
    for _ in range(5):
        found = script.values(expr)
        if found and all(is_loader(t) for t in found) and all(id(t) in loaders for t in found):
            break
        if isinstance(expr, ast.Subscript) and any(
            isinstance(t, Dict) for t in script.values(expr.value)
        ):
            break
        inner = inside_bar(found)
        if inner is None:
            raise Refusal(unknown)
        expr = inner
    for scheduled in loaders.values():
        loader = next((x for x in script.loaders if any(t is scheduled for t in x.things)), None)
        if loader is None:
            raise Refusal(unknown)
        check_loader(loader, scheduled)
    if not loaders or not isinstance(expr, (ast.Name, ast.Attribute, ast.Subscript)):
        raise Refusal(unknown)
    return expr, list(loaders.values())


def inside_bar(found: Values) -> ast.expr | None:
    """What a progress bar or a counter goes over, as it is written; None where something else is
    among these values.
    """
    inner = {
        id(t.args.positional[0].expr): t.args.positional[0].expr
        for t in found
        if isinstance(t, Ext) and t.args.positional
    }
    if len(inner) != 1 or not all(isinstance(t, Ext) and t.name.startswith(BARS) for t in found):
        return None
    return next(iter(inner.values()))


def check_loader(loader: Loader, thing: Thing) -> None:
    where = f"the loader on {at(loader.node)}"
    if isinstance(thing, Inst) and any(
        thing.cls.find(n) is not None for n in ("__len__", "__iter__")
    ):
        raise Refusal(f"{where} counts its batches in its own way")
    if loader.args.open:
        raise Refusal(f"not all arguments of {where} are known")
    for index_, name in ((3, "sampler"), (4, "batch_sampler")):
        if any(not isinstance(t, Ext) and t != Const(None) for t in loader.args.get(index_, name)):
            raise Refusal(f"{where} has a {name} of its own, whose length may change")
    shuffled = const(loader.args.get(2, "shuffle")) is True
    if not loader.datasets and not shuffled:
        raise Refusal(f"what {where} loads is not known, nor how many batches it has")
    for dataset in loader.datasets:
        if dataset.iterable:
            raise Refusal(f"{where} has an IterableDataset, whose number of batches is not known")
        if dataset.kind == "unknown" and not shuffled:
            raise Refusal(f"what {where} loads is not known, nor how many batches it has")
        if _may_grow(dataset.thing, dataset.set_outside):
            raise Refusal(f"the length of the data set of {where} may change")


def _may_grow(dataset: Thing, set_outside: tuple[ast.AST, ...]) -> bool:
    """Whether what ``__len__`` counts is set from outside."""
    found = dataset.cls.find("__len__") if isinstance(dataset, Inst) else None
    counted = {
        n.attr for f in found or () for n in nodes_in(getattr(f, "node", ast.Pass()), ast.Attribute)
    }
    touched = {n.attr for place in set_outside for n in nodes_in(place, ast.Attribute)}
    return bool(counted & touched)
