"""Workers for loaders that have none: the argument, and what other arguments wish for beside it."""

from __future__ import annotations

from dataclasses import replace

from autofast.edit.edits import Edit
from autofast.facts.loaders import counts, given
from autofast.facts.workers.legality import against, cheap, effect_of
from autofast.model.script import Loader, Script
from autofast.model.source import source_of
from autofast.rule import Options
from autofast.write.arguments import Home, room
from autofast.write.loader_arguments import Wish
from autofast.write.worker_helper import Helped, against_starting, as_beside, helper

NAME = "num_workers"


def refusal(script: Script, loader: Loader) -> str:
    """Why a loader without workers does not get any; empty where it does."""
    return against(script, loader) or cheap(script, loader) or against_starting(script)


def wish(script: Script, loader: Loader, options: Options, template: str = "{}") -> Wish:
    def make(home: Home) -> tuple[str, tuple[Edit, ...]]:
        own = home.node is loader.node and not options.workers
        beside = as_beside(script, loader.node) if own else None
        source = source_of(home.node)
        served = [x for x in _served(script) if source_of(x.node) is source]
        rooms = [room(script, x.args, NAME, [x.node for x in served]) for x in served]
        alone = len({id(r.node) for r in rooms if not isinstance(r, str)}) < 2
        helped = beside or helper(script, source, options, alone)
        code = template.format(helped.code)
        return ("True" if template != "{}" and helped.some else code), helped.edits

    return Wish(loader, make, effect_of(script, loader))


def together(script: Script, loader: Loader, options: Options, template: str) -> Wish | None:
    """What another rule wishes for a loader with workers by this one; ``{}`` is their number."""
    if not options.decides(Helped) or refusal(script, loader):
        return None
    home = room(script, loader.args, NAME, [x.node for x in _served(script)])
    if isinstance(home, str):
        return None
    return replace(
        wish(script, loader, options, template), effect=None, needs=(Helped,), key=home.node
    )


def _served(script: Script) -> list[Loader]:
    """The loaders that get workers."""
    return [
        x
        for x in script.loaders
        if counts(script, x) and given(x, NAME) is None and not refusal(script, x)
    ]
