"""stepwise-scheduler: step the learning rate after every update instead of once an epoch."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import After, Edits, Remove
from autofast.edit.order import Rank
from autofast.facts.updates.rates import by_hand, check_rates, counted_wrong
from autofast.model.roles import Scheduler, Tick
from autofast.model.script import Script
from autofast.model.source import at, function_of
from autofast.rule import Effect, Finding, Options, Refusal, rule
from autofast.techniques.accumulation.accumulated import planned
from autofast.techniques.schedule.lengths import lengthened
from autofast.techniques.schedule.place import place_of
from autofast.write.reach import Reach

MESSAGE = "the learning rate changes once an epoch; stepped after every update it follows the same curve in small steps"


@rule(
    "stepwise-scheduler", Effect.RECIPE, groups=("schedule",), default=False, uses=("accumulation",)
)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Step the learning rate after every update instead of once an epoch."""
    ticks = {t.node: t for s in script.schedulers for t in s.ticks}
    for tick in ticks.values():
        schedulers = [s for s in script.schedulers if tick in s.ticks]
        first = schedulers[0]
        if advice := counted_wrong(script, tick, schedulers):
            yield Finding(
                first.node,
                "the schedule counts one thing and is stepped after another",
                advice=advice,
            )
        try:
            edits = _edits(script, options, tick, schedulers)
        except Refusal as why:
            yield Finding(first.node, MESSAGE, refusal=str(why))
        else:
            yield Finding(first.node, MESSAGE, edits=edits, key=first.node)
    if not ticks and (place := by_hand(script)) is not None:
        yield Finding(
            place,
            MESSAGE,
            refusal="the learning rate is set by hand here: what it depends on is not known",
        )


def _edits(script: Script, options: Options, tick: Tick, schedulers: list[Scheduler]) -> Edits:
    """All that it takes; raises :class:`Refusal`."""
    if tick.unit == "update":
        parts = "with parts of epochs" if tick.given else "after every update"
        raise Refusal(f"it is stepped {parts} already")
    if len(schedulers) > 1:
        raise Refusal(f"it is one of several schedulers ({at(schedulers[1])})")
    (scheduler,) = schedulers
    lengthened(script, scheduler, "1")  # refuses what counts in another way
    place = place_of(script, tick, scheduler)
    if planned(script, options, place.loop) is not None:
        raise Refusal(
            "the number of batches in an update changes, too: make one change after the other"
        )
    check_rates(script, schedulers)
    ways = [*place.stacks, *scheduler.ways]
    loader = Reach(script, "loader", place.loader, place.loaders, ways)
    count = f"len({loader.to(function_of(scheduler.node))})"
    loader.check_made(scheduler.node, scheduler.ways)
    step = After(place.anchor, f"{ast.unparse(tick.scheduler)}.step()", rank=Rank.SCHEDULE)
    return Remove(place.gone), step, lengthened(script, scheduler, count)
