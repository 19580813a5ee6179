"""Which loaders of a training can be shared out among processes, and in what their batches come."""

from __future__ import annotations

import ast

from autofast.facts.loaders import is_managed, loader_argument, whole_batches
from autofast.model.calls import is_name
from autofast.model.names import last_part
from autofast.model.roles import Loader, Step
from autofast.model.script import Script
from autofast.model.several import any_in, of_kind
from autofast.model.source import ByNode, at, function_of
from autofast.model.values import Const, Ext, Given, all_of, const, ordered
from autofast.rule import Refusal
from autofast.write.share_helper import is_share

OWN_ORDER = ("sampler", "batch_sampler", "generator", "collate_fn", "worker_init_fn")
READ = frozenset({"dataset"})  # what may be asked of a loader that gives a share only


def loaders_of(script: Script) -> list[Loader]:
    """The loaders whose batches are trained on; raises :class:`Refusal` where one cannot be shared
    out.
    """
    found: ByNode[Loader] = {}
    for step in script.steps:
        _check_step(step)
        for thing in step.loaders:
            loader = script.loader_of(thing)
            if loader is None:
                raise Refusal(
                    f"where the batches of the loop on {at(step.loop)} come from is not known"
                )
            found[loader.node] = loader
    for loader in found.values():
        _check_loader(script, loader)
        _check_uses(script, loader)
    return list(found.values())


def _check_step(step: Step) -> None:
    if not isinstance(step.loop, ast.For) or not step.loaders:
        raise Refusal(
            f"the loop on {at(step.loop)} takes its batches from no DataLoader, so it is not known how to share them out: "
            "put the data into a Dataset and a DataLoader first"
        )
    if len({id(x) for x in step.loaders}) != len(step.loaders) or _zipped(step):
        raise Refusal(f"the loop on {at(step.loop)} goes over several loaders at once")


def _zipped(step: Step) -> bool:
    return isinstance(step.loop, ast.For) and any(
        is_name(n, "zip", "cycle", "chain") for n in ast.walk(step.loop.iter)
    )


def size_of(script: Script, loader: Loader) -> Given | None:
    """The argument that is the size of a batch."""
    whole = whole_batches(loader)
    if whole is None:
        return loader_argument(loader, "batch_size")
    return Given(script.values(whole.size), whole.size)


def _check_loader(script: Script, loader: Loader) -> None:
    where = at(loader)
    if not all_of(loader.things, Ext):
        raise Refusal(f"the loader on {where} is of a class of its own")
    if is_managed(script, loader):
        raise Refusal("a framework gets the loader and shares its batches out itself")
    if loader.args.open:
        raise Refusal(
            f"the arguments of the loader on {where} are not all known: {loader.args.open}"
        )
    if loader.loop is not None:
        raise Refusal(f"the loader on {where} is made anew in a loop ({at(loader.loop)})")
    for name in ("sampler", "batch_sampler"):
        value = loader_argument(loader, name)
        if whole_batches(loader) is not None:
            break
        if value is not None and value.values != frozenset({Const(None)}):
            made = of_kind(ordered(value.values), Ext)
            kind = next((last_part(t.name) for t in made), "its own")
            raise Refusal(
                f"the loader on {where} has a {name.replace('_', ' ')} ({kind}): which samples it draws would change if each process got a part"
            )
    for name in ("generator",):
        value = loader_argument(loader, name)
        if value is not None and value.values != frozenset({Const(None)}):
            raise Refusal(f"the loader on {where} has a generator of its own for the order")
    collate = loader_argument(loader, "collate_fn")
    if collate is not None and collate.values != frozenset({Const(None)}):
        raise Refusal(
            f"the loader on {where} has a collate_fn: batches of different shapes would weigh otherwise in each process"
        )
    size = size_of(script, loader)
    if size is None or const(size.values) in (1, None):
        raise Refusal(
            f"the loader on {where} gives single samples (batch_size {const(size.values) if size else 1}): there is nothing to share out"
        )
    if not loader.datasets:
        raise Refusal(f"the dataset of the loader on {where} is not known")
    for dataset in loader.datasets:
        if dataset.iterable:
            raise Refusal(
                f"{dataset.name} is an IterableDataset: every process would get all of it, unless it shares itself out by rank"
            )
        if dataset.unknown or dataset.kind == "unknown":
            raise Refusal(
                f"what the dataset of the loader on {where} is is not known: {dataset.unknown or dataset.name}"
            )


def _check_uses(script: Script, loader: Loader) -> None:
    for use in loader.uses:
        if use.is_next:
            raise Refusal(
                f"single batches are taken from the loader on {at(use)}: go through it in a `for` loop"
            )
        if not use.trains:
            raise Refusal(
                f"the loader on {at(loader)} is also gone through without training on {at(use)}: make a second one for that"
            )
    for source in script.sources:
        for node in source.each(ast.Attribute):
            if (
                node.attr not in READ
                and any_in(script.values(node.value), loader.things)
                and not is_share(function_of(node))  # a quotient of numbers that are shares all
            ):
                raise Refusal(
                    f"`{ast.unparse(node)}` on {at(node)} would mean the share of one process"
                )
