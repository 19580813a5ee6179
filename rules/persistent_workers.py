"""persistent-workers: keep the worker processes from one epoch to the next."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from autofast.facts.cost import gains
from autofast.facts.loaders import is_iterated_again, is_used, loader_argument
from autofast.facts.settings import settings_place
from autofast.model.roles import Loader
from autofast.model.script import Script
from autofast.model.source import at
from autofast.rule import Effect, Finding, Options, rule
from autofast.techniques.loading.persistent import (
    NAME,
    SINCE,
    given_in_some_runs,
    is_positive,
    made_anew,
    may_keep,
    peeking_advice,
    why_not_persistent,
    workers_of,
)
from autofast.techniques.loading.resident import remaining_loaders
from autofast.write.arguments import Home, Wish, argument_findings, others_may_give

MESSAGE = "the worker processes are stopped and started again at every epoch"


@rule(
    "persistent-workers",
    Effect.SAMPLING,
    groups=("loader",),
    relieves={"data": 3},
    uses=("num-workers", "gpu-data", "gpu-augmentation", "ddp", "dataparallel-to-ddp"),
    asks=gains.keeping,
    torch=SINCE,
)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Keep the worker processes from one epoch to the next."""
    yield from peeking_advice(script)
    wishes: list[Wish] = []
    homes: dict[ast.AST | None, tuple[Home, list[Loader]]] = {}
    used = [x for x in remaining_loaders(script, options) if is_used(script, x)]
    mine = [x for x in used if loader_argument(x, NAME) is None]
    for loader in used:
        if is_iterated_again(script, loader) and (advice := given_in_some_runs(loader)):
            why = why_not_persistent(script, loader)
            yield Finding(loader.node, MESSAGE, refusal=why, advice="" if why else advice)
    only_evaluates = not (script.steps or script.frameworks)  # all go through their data once
    loaders = [x for x in mine if only_evaluates or is_iterated_again(script, x)]
    for loader in mine:
        if loader not in loaders:
            yield from made_anew(loader)
    for loader in loaders:
        workers = workers_of(script, loader, options)
        if not workers:
            continue
        if isinstance(workers, str) and (where := settings_place(loader.args)):
            if not why_not_persistent(script, loader):
                advice = f"set {NAME} beside the arguments of {where}"
                yield Finding(loader.node, MESSAGE, advice=advice)
        elif isinstance(workers, str) or (why := why_not_persistent(script, loader)):
            yield Finding(
                loader.node, MESSAGE, refusal=workers if isinstance(workers, str) else why
            )
        elif isinstance(workers, Wish):
            wishes.append(workers)
        else:
            for home in workers:
                homes.setdefault(home.expr, (home, []))[1].append(loader)
    yield from argument_findings(script, NAME, MESSAGE, wishes)
    yield from _beside(script, homes.values())


def _beside(script: Script, homes: Iterable[tuple[Home, list[Loader]]]) -> Iterator[Finding]:
    """Findings for loaders that have workers: the argument goes to where their number is
    written.
    """
    for home, members in homes:
        others = [call for call in home.calls if all(call is not x.node for x in members)]
        others = [call for call in others if not may_keep(script, call, home, members)]
        if others:
            why = f"the dict also feeds the loader of {at(others[0])}, which is not to keep its workers"
            yield Finding(home.node, MESSAGE, refusal=why)
        elif why := others_may_give(script, home.node):
            yield Finding(home.node, MESSAGE, refusal=why)
        elif home.expr is not None:
            yield Finding(
                home.node, MESSAGE, edits=(home.set(NAME, is_positive(script, home.expr)),)
            )
