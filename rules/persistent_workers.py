"""persistent-workers: keep the worker processes from one epoch to the next."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from autofast.facts.cost import gains
from autofast.facts.loaders import again, counts, given
from autofast.facts.settings import beside
from autofast.model.roles import Loader
from autofast.model.script import Script
from autofast.model.source import at
from autofast.rule import Effect, Finding, Options, rule
from autofast.techniques.loading.persistent import (
    NAME,
    SINCE,
    against,
    made_anew,
    may_keep,
    peeking,
    positive,
    workers_of,
)
from autofast.techniques.loading.resident import left
from autofast.write.arguments import Home, Wish, added, others_may_give

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
    yield from peeking(script)
    wishes: list[Wish] = []
    homes: dict[ast.AST | None, tuple[Home, list[Loader]]] = {}
    mine = [x for x in left(script, options) if counts(script, x) and given(x, NAME) is None]
    loaders = [x for x in mine if again(script, x)]
    for loader in mine:
        if loader not in loaders:
            yield from made_anew(loader)
    for loader in loaders:
        workers = workers_of(script, loader, options)
        if not workers:
            continue
        if isinstance(workers, str) and (where := beside(loader.args)):
            if not against(script, loader):
                advice = f"set {NAME} beside the arguments of {where}"
                yield Finding(loader.node, MESSAGE, advice=advice)
        elif isinstance(workers, str) or (why := against(script, loader)):
            yield Finding(
                loader.node, MESSAGE, refusal=workers if isinstance(workers, str) else why
            )
        elif isinstance(workers, Wish):
            wishes.append(workers)
        else:
            for home in workers:
                homes.setdefault(home.expr, (home, []))[1].append(loader)
    yield from added(script, NAME, MESSAGE, wishes)
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
            yield Finding(home.node, MESSAGE, edits=(home.set(NAME, positive(script, home.expr)),))
