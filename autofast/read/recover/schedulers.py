"""Learning-rate schedulers: what they are made of, whose rates they set, and when they are
stepped.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from autofast.model.calls import is_method
from autofast.model.events import LoopFrame, Site, loops
from autofast.model.kinds import is_optimizer, is_scheduler
from autofast.model.names import last_part
from autofast.model.roles import Scheduler, Tick
from autofast.model.script import Script
from autofast.model.several import any_in, of_kind
from autofast.model.source import ByNode
from autofast.model.syntax import LOOPS
from autofast.model.values import Ext, Inst, Seq, Thing, Values, joined, one, ordered
from autofast.read.recover.steps import all_updates

SEVERAL = {"SequentialLR": 1, "ChainedScheduler": 0}  # where their list of schedulers stands


def build_schedulers(script: Script, made: Iterable[Ext | Inst]) -> list[Scheduler]:
    """All schedulers, those inside others too, in the order of their making."""
    found: ByNode[Scheduler] = {}
    ticks, updates = _ticks(script), all_updates(script)
    for thing in made:
        if not is_scheduler(thing) or not isinstance(thing.node, ast.Call) or thing.args is None:
            continue
        old = found.get(thing.node)
        if old is None:
            name = thing.cls.node.name if isinstance(thing, Inst) else last_part(thing.name)
            found[thing.node] = Scheduler(
                [thing], thing.node, name, thing.args, isinstance(thing, Inst), [], [], []
            )
        else:
            old.things.append(thing)
            old.args = joined([old.args, thing.args])
    for scheduler in found.values():
        mine = set(scheduler.things)
        scheduler.ticks = [t for t in ticks if any_in(t.things, mine)]
        if scheduler.name in SEVERAL and not scheduler.own:
            scheduler.inner = list(
                _schedulers_in(scheduler.args.get(SEVERAL[scheduler.name], "schedulers"))
            )
    for scheduler in found.values():
        scheduler.optimizers = _optimizers(scheduler, found)
        wanted = set(scheduler.optimizers)
        scheduler.updates = [u for u in updates if any_in(u.things, wanted)]
        scheduler.outer = any(
            x in scheduler.things for other in found.values() for x in other.inner
        )
    return list(found.values())


def _optimizers(scheduler: Scheduler, every: ByNode[Scheduler]) -> list[Thing]:
    given = scheduler.args.get(0, "optimizer")
    if scheduler.name == "ChainedScheduler" and not scheduler.own:
        inner = [s for s in every.values() if any_in(s.things, scheduler.inner)]
        given = frozenset().union(*(s.args.get(0, "optimizer") for s in inner))
    return [t for t in ordered(given) if is_optimizer(t)]


def _schedulers_in(found: Values) -> Iterator[Thing]:
    for thing in ordered(found):
        if isinstance(thing, Seq):
            for part in thing.items or ():
                yield from ordered(part)
            yield from ordered(thing.elem)


def _ticks(script: Script) -> list[Tick]:
    found = []
    for site in script.methods("step"):
        node = site.node
        if is_method(node):
            things = {id(t): t for t in site.owners if is_scheduler(t)}
            if things:
                found.append(
                    Tick(node, node.func.value, list(things.values()), site, _unit(script, site))
                )
    return found


def _unit(script: Script, site: Site) -> str:
    """update | epoch | other"""
    units = set()
    for occurrence in site:
        around = [f.node for f in loops(occurrence.stack) if isinstance(f.node, LOOPS)]
        if any(step.loop in around for step in script.steps):
            units.add("update")
        elif around and any(_holds(step.stack, around[-1]) for step in script.steps):
            units.add("epoch")
        else:
            units.add("other")
    return one(units, "other")


def _holds(stack: tuple[object, ...], loop: ast.AST) -> bool:
    return any(f.node is loop for f in of_kind(stack, LoopFrame))
