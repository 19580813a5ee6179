"""stepwise-scheduler: step the learning rate after every update instead of once an epoch."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import After, Before, Edit, Remove
from autofast.edit.order import Rank
from autofast.facts.updates.cadence import Cadence, cadence_of
from autofast.facts.updates.rates import by_hand, check_rates, counted_wrong, log_between
from autofast.flow.positions import block, place_in
from autofast.model.events import LoopFrame
from autofast.model.script import Scheduler, Script, Tick
from autofast.model.source import (
    at,
    function_of,
    is_elif,
    source_of,
    statement_of,
    statements_around,
)
from autofast.rule import Effect, Finding, Options, Refusal, rule
from autofast.techniques.accumulation.accumulated import planned
from autofast.techniques.accumulation.window import Window
from autofast.techniques.schedule.lengths import Conversion, changed, check, every_part
from autofast.write.reach import Reach

MESSAGE = "the learning rate changes once an epoch; stepped after every update it follows the same curve in small steps"


@rule(
    "stepwise-scheduler", Effect.RECIPE, groups=("schedule",), default=False, uses=("accumulation",)
)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Step the learning rate after every update instead of once an epoch."""
    ticks = {id(t.node): t for s in script.schedulers for t in s.ticks}
    for tick in ticks.values():
        schedulers = [s for s in script.schedulers if any(t is tick for t in s.ticks)]
        first = schedulers[0]
        if advice := counted_wrong(script, tick, schedulers):
            yield Finding(
                first.node,
                "the schedule counts one thing and is stepped after another",
                advice=advice,
            )
        try:
            edits, note = _edits(script, options, tick, schedulers)
        except Refusal as why:
            yield Finding(first.node, MESSAGE, refusal=str(why))
        else:
            yield Finding(first.node, MESSAGE + note, edits=tuple(edits), key=first.node)
    if not ticks and (place := by_hand(script)) is not None:
        yield Finding(
            place,
            MESSAGE,
            refusal="the learning rate is set by hand here: what it depends on is not known",
        )


def _edits(
    script: Script, options: Options, tick: Tick, schedulers: list[Scheduler]
) -> tuple[list[Edit], str]:
    """All that it takes; raises :class:`Refusal`."""
    if tick.unit == "update":
        raise Refusal(
            "it is stepped after every update already"
            if not tick.given
            else "it is stepped with parts of epochs already"
        )
    parts: list[list[Scheduler]] = []
    for scheduler in schedulers:
        every = [scheduler] if scheduler.own else every_part(script, scheduler, tick)
        check(scheduler, every)
        parts.append(every)
    flat = list({id(p): p for every in parts for p in every}.values())
    cadence = cadence_of(script, tick, schedulers)
    windows = _windows(script, options, cadence)
    check_rates(script, flat)
    edits: list[Edit] = [Remove(cadence.gone)]
    name = tick.scheduler
    if function_of(cadence.anchor) is function_of(name):
        text = source_of(name).segment(name)
    else:
        way = Reach(script, "scheduler", name, tick.things, cadence.stacks, plain="None")
        text = way.to(function_of(cadence.anchor))
        edits += way.edits
    edits.append(_followed(cadence, text, cadence.guard or len(edits) > 1))
    made, smooth = _horizons(script, cadence, flat, windows)
    if not smooth:
        names = ", ".join(dict.fromkeys(s.name for s in schedulers))
        raise Refusal(
            f"{names} would give the same learning rates: they change at the ends of epochs only"
        )
    return edits + made, log_between(script, cadence)


def _windows(script: Script, options: Options, cadence: Cadence) -> Window | None:
    """The windows of several batches that the rule ``accumulation`` makes in the same plan."""
    found = planned(script, options, cadence.loop)
    if found is None:
        return None
    if found.window is None:
        raise Refusal(
            "the number of batches in an update changes, too: make one change after the other"
        )
    if not found.guards(cadence.anchor, [o.stack for u in cadence.updates for o in u.site]):
        raise Refusal(
            "where an update of several batches is done is not one place: gather the gradients first, then step the scheduler"
        )
    return found.window


def _horizons(
    script: Script, cadence: Cadence, parts: list[Scheduler], windows: Window | None
) -> tuple[list[Edit], bool]:
    """The edits where the schedulers are made, and whether any of them then changes within
    epochs.
    """
    loader = Reach(
        script,
        "loader",
        cadence.loader,
        cadence.loaders,
        [*cadence.stacks, *(way for p in parts for way in p.ways)],
    )
    by_scope: dict[int, list[Scheduler]] = {}
    for part in parts:
        by_scope.setdefault(id(function_of(part.node)), []).append(part)
    edits: list[Edit] = []
    smooth = False
    for group in by_scope.values():
        made, changes = _in_one_scope(script, cadence, group, loader, windows)
        edits += made
        smooth |= changes
    return edits + list(loader.edits), smooth


def _in_one_scope(
    script: Script, cadence: Cadence, parts: list[Scheduler], loader: Reach, windows: Window | None
) -> tuple[list[Edit], bool]:
    scope = function_of(parts[0].node)
    for part in parts:
        if any(
            isinstance(f, LoopFrame) and f.node is cadence.epochs for way in part.ways for f in way
        ):
            raise Refusal("it is made anew in every epoch")
        loader.check_made(part.node, part.ways)
    count = _count(parts[0], loader.to(scope), windows)
    trial = [changed(script, p, count) for p in parts]
    uses = sum(c.uses for c in trial)
    if uses == 0 or (windows is None and uses == 1):
        return [e for c in trial for e in c.edits], any(c.smooth for c in trial)
    name = source_of(scope).fresh("steps_per_epoch")
    changes = [changed(script, p, name) for p in parts]
    first = _first_of(changes)
    for part in parts:
        loader.check_made(first, part.ways)
    return [Before(first, f"{name} = {count}"), *(e for c in changes for e in c.edits)], any(
        c.smooth for c in changes
    )


def _count(part: Scheduler, loader: str, windows: Window | None) -> str:
    """The number of updates in an epoch."""
    length = f"len({loader})"
    if windows is None:
        return length
    count = windows.count(part.node, length)
    return f"max(1, {count})" if windows.drop else count


def _first_of(changes: list[Conversion]) -> ast.stmt:
    """The first statement, in a block around all that need the number."""
    statements = [statement_of(c.scheduler.node) for c in changes if c.uses]
    for outer in statements_around(statements[0]):
        here = block(outer)
        places = [place_in(here, s) for s in statements]
        if here and min(places) >= 0:
            first = here[min(places)]
            if not is_elif(first):
                return first
    raise Refusal(f"the schedulers are made in different places ({at(statements[0])})")


def _followed(cadence: Cadence, scheduler: str, guarded: bool) -> Edit:
    """The scheduler's step in its new place; ``scheduler`` is its name there, which may be None
    where it is ``guarded``.
    """
    code = f"{scheduler}.step()"
    if guarded:
        code = f"if {scheduler} is not None:\n    {code}"
    return After(cadence.anchor, code, rank=Rank.SCHEDULE)
