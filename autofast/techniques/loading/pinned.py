"""Which loaders give batches in page-locked memory, or will, by ``pin-memory``."""

from __future__ import annotations

import ast
import functools
from collections.abc import Sequence

from autofast.facts.loaders import (
    has_no_workers,
    is_managed,
    is_used,
    loader_argument,
    made_elsewhere,
    of_array,
    pinning_advice,
    says_no,
    stays_unpinned,
    values_given,
)
from autofast.facts.workers.legality import on_device
from autofast.model.roles import Loader
from autofast.model.script import Script
from autofast.model.several import any_in
from autofast.model.source import at
from autofast.model.values import Ext, Inst, Ref, Tensor, Thing, is_on_device
from autofast.read.requirements import rules_out
from autofast.rule import Options
from autofast.techniques.loading.few_workers import why_none
from autofast.techniques.loading.resident import remaining_loaders
from autofast.write.arguments import Home, place_for_argument
from autofast.write.worker_helper import Helped

GRAPHS, SINCE = "torch-geometric", (1, 7)  # since when its batches have pin_memory()


class Pinned:
    """What ``pin-memory`` decides: that the batches of a loader are pinned, at the place where its
    argument is written.
    """


def pinnable(script: Script, options: Options) -> list[Loader]:
    """The loaders whose batches can be pinned, and are not."""
    return [
        x
        for x in remaining_loaders(script, options)
        if is_used(script, x)
        and not is_given(x)
        and not pinning_advice(x)
        and not why_not_pinned(script, x)
    ]


def pinning_place(script: Script, options: Options, things: Sequence[Thing]) -> ast.AST | bool:
    """Where one of these loaders gets its argument, as the key of that fix; True where one has it
    already, False where none can get it.
    """
    mine = [x for x in script.loaders if any_in(things, x.things)]
    if not mine or any(is_given(x) for x in mine):
        return True
    able = pinnable(script, options) if options.decides(Pinned) else []
    calls = [x.node for x in able]
    rank = functools.partial(_seldomness, script, options)
    for loader in sorted((x for x in able if x in mine), key=rank):
        home = written_off(loader) or place_for_argument(script, loader.args, "pin_memory", calls)
        if not isinstance(home, str):
            return home.node
    return False


def _seldomness(script: Script, options: Options, loader: Loader) -> tuple[bool, bool, bool, bool]:
    """Loaders that are trained with come first, and those that are gone through once, or whose
    batches the process that waits for them would pin itself, come last: most of all those that
    get no workers either.
    """
    repeated = any(use.repeated for use in loader.uses)
    alone = has_no_workers(loader)
    stays = alone and (not options.decides(Helped) or bool(why_none(script, loader)))
    return not loader.trains, not repeated, alone, stays


def is_given(loader: Loader) -> bool:
    """Whether the script says something about it, other than no."""
    argument = loader_argument(loader, "pin_memory")
    return argument is not None and not says_no(argument)


def written_off(loader: Loader) -> Home | None:
    """Where ``pin_memory=False`` stands in the call of the loader; None where it says nothing."""
    argument, call = loader_argument(loader, "pin_memory"), loader.node
    if argument is None or argument.expr is None:
        return None
    return Home(call, argument.expr, (call,))


def why_not_pinned(script: Script, loader: Loader) -> str:
    """Why the batches must stay where they are; empty where nothing speaks against."""
    if why := stays_unpinned(script, loader):
        return why
    if (place := made_elsewhere(script, loader)) is not None:
        return f"{at(place)} puts new tensors on another device: batches that are on it cannot be pinned"
    for dataset in loader.datasets:
        if dataset.on_device:
            return f"items of {dataset.name} are on the device already ({dataset.on_device}): they cannot be pinned"
    if why := on_device(loader):
        return f"{why}: they cannot be pinned"
    called = script.called(loader.node)
    made = (*called, *loader.things, *loader.batch, *values_given(loader, "collate_fn"))
    if any(map(_is_of_graphs, made)) and (old := rules_out(script, SINCE, GRAPHS)):
        return f"{old}, whose batches had no pin_memory() yet"
    if not is_managed(script, loader) and not _reaches_gpu(script, loader):
        return "its batches are never moved to a GPU as they are"
    return ""


def _is_of_graphs(thing: Thing) -> bool:
    """Of torch_geometric, or of a class of the project that derives from one."""
    if isinstance(thing, (Ext, Ref)):
        return thing.name.startswith("torch_geometric.")
    if not isinstance(thing, Inst) or thing.cls.find("pin_memory"):
        return False
    return any(n.startswith("torch_geometric.") for n in thing.cls.external)


def _reaches_gpu(script: Script, loader: Loader) -> bool:
    if any(
        t.kinds - {"cpu", "tensor", "type"}
        and t.how in ("to", "cuda", "type")
        and not of_array(script, t.node.func)
        for t in loader.moved
    ):
        return True
    for site in script.methods("copy_"):  # into a buffer on the device
        for occurrence in site:
            found = occurrence.args.get(0, "src")
            on_it = is_on_device(occurrence.this)
            if on_it and any(
                isinstance(t, Tensor) and any_in(t.batch, loader.things) for t in found
            ):
                return True
    return False
