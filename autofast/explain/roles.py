"""What stands at a place, by the roles that things play in a training: loaders, models, optimizers,
the parts of a step."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator

from autofast.explain.words import names, place, thing, values
from autofast.flow.provenance import Trail
from autofast.model.events import Site, Stack
from autofast.model.roles import Loader, Step
from autofast.model.script import Script
from autofast.model.values import OBJECTS, Arguments, Thing

Here = Callable[["ast.AST | None"], bool]


def roles(script: Script, here: Here) -> Iterator[str]:
    """One line for each role; ``here`` says whether a node stands at the place."""
    yield from _loaders(script, here)
    yield from _models(script, here)
    yield from _optimizers(script, here)
    for step in script.steps:
        yield from _step(step, here)
    for evaluation in script.evaluations:
        if here(evaluation.node) or any(here(s.node) for s in evaluation.forwards):
            grad = {"on": "on", "maybe": "perhaps on"}.get(evaluation.mode, "off")
            yield f"evaluation ({place(evaluation.node)}): forward passes that no backward follows; gradients are {grad}"
    for transfer in script.transfers:
        if here(transfer.node):
            whose = _places(transfer.loaders)
            what = f"batches of the loader at {whose}" if whose else "tensors"
            why = f"; what is copied is not known: {transfer.unknown}" if transfer.unknown else ""
            yield f"copy: {what} {'to the device' if transfer.to_device else f'by .{transfer.how}()'}{why}"
    for sync in script.syncs:
        if here(sync.node):
            how = "under a condition of a loop" if sync.gated else "whenever it runs"
            yield f"read of a tensor by the host (`{sync.how}`), {how}: it waits for the device"
    for trainer in script.trainers:
        if here(trainer.node):
            yield f"{trainer.name} of {trainer.framework}, which has the training loop"


def _loaders(script: Script, here: Here) -> Iterator[str]:
    for loader in script.loaders:
        if here(loader.node):
            yield from _loader(script, loader)
        for use in loader.uses:
            if here(use.node):
                what = "training" if use.trains else "no training"
                yield f"loop over the batches of the loader at {place(loader.node)}: {what} in it"


def _loader(script: Script, loader: Loader) -> Iterator[str]:
    data = ", ".join(dict.fromkeys(f"{d.name} ({d.kind})" for d in loader.datasets))
    yield f"loader of {data or 'data that are not known'}"
    for use in loader.uses:
        what = "trains" if use.trains else "does not train"
        again = "again and again" if use.repeated else "once"
        yield f"its batches: {place(use.node)}, which {what}, gone through {again}"
    for transfer in loader.moved:
        yield f"its batches are copied at {place(transfer.node)}"
    yield from arguments(script, loader.args, _stacks(loader.things))


def _models(script: Script, here: Here) -> Iterator[str]:
    for model in script.models:
        passes = _lines(s.node for s in model.forwards)
        if here(model.node):
            layers = ", ".join(sorted(model.layers)) or "not known"
            why = f" (not all are known: {model.unknown})" if model.unknown else ""
            yield f"model {model.name}, layers: {layers}{why}; forward at {passes or 'no place'}"
            for move in model.moves:
                yield f"it is moved at {place(move.node)}"
            for wrap in model.wraps:
                yield f"it is wrapped in {wrap.name} at {place(wrap.node)}"
        elif any(here(s.node) for s in model.forwards):
            yield f"forward of the model {model.name} (made at {place(model.node) or 'no known place'})"


def _optimizers(script: Script, here: Here) -> Iterator[str]:
    for optimizer in script.optimizers:
        if here(optimizer.node):
            whose = _places(optimizer.params)
            of = f"the model made at {whose}" if whose else "parameters that are not known"
            steps = _lines(u.node for u in optimizer.updates)
            yield f"optimizer {optimizer.name} of {of}; its updates: {steps or 'none'}"
            yield from arguments(script, optimizer.args, _stacks(optimizer.things))
    for scheduler in script.schedulers:
        if here(scheduler.node):
            ticks = ", ".join(f"{place(t.node)} (each {t.unit})" for t in scheduler.ticks)
            yield f"learning-rate schedule {scheduler.name}; stepped at {ticks or 'no place'}"
        for tick in scheduler.ticks:
            if here(tick.node):
                yield f"step of the schedule {scheduler.name} (made at {place(scheduler.node)}), each {tick.unit}"


def _step(step: Step, here: Here) -> Iterator[str]:
    of = f"of the training loop at {place(step.loop)}"
    if here(step.loop):
        yield "training loop"
        for name, sites in _parts(step):
            if where := _lines(s.node for s in sites):
                yield f"its {name}: {where}"
        if step.autocast:
            yield f"its forward runs under autocast ({_lines(step.autocast)})"
        return
    for name, sites in _parts(step):
        if any(here(s.node) for s in sites):
            yield f"{name} {of}"


def _parts(step: Step) -> list[tuple[str, Iterable[Site]]]:
    return [
        ("forward", step.forwards),
        ("loss", step.losses),
        ("backward", [b.site for b in step.backwards]),
        ("update", [u.site for u in step.updates]),
        ("zeroing of gradients", step.zeros),
        ("clipping of gradients", step.clips),
        ("step of the schedule", step.schedules),
        ("unscaling of gradients", step.unscales),
        ("update of the scaler", step.scaler_updates),
    ]


def arguments(script: Script, args: Arguments, stacks: list[Stack]) -> Iterator[str]:
    """The arguments of a call, each with the place where it is decided."""
    for name, given in args.named.items():
        origins = Trail(script).of(given, stacks)
        said = values(given.values) or "not known"
        if isinstance(origins, str):
            where = f" ({origins})"
        else:
            at = [(o.kind, place(o.node)) for o in origins]
            new = dict.fromkeys(f"{kind}, {p}" for kind, p in at if not names(said, p))
            where = f" ({' or '.join(new)})" if new else ""
        yield f"{name} = {said}{where}"


def _stacks(things: Iterable[Thing]) -> list[Stack]:
    return [t.made for t in things if isinstance(t, OBJECTS)]


def _places(things: Iterable[Thing]) -> str:
    known = dict.fromkeys(place(getattr(t, "node", None)) or thing(t) for t in things)
    return " or ".join(known)


def _lines(nodes: Iterable[ast.AST]) -> str:
    return ", ".join(dict.fromkeys(place(node) for node in nodes))
