"""ddp: train in several processes, one for each GPU, with DistributedDataParallel."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from autofast.edits import Edit, Wrap
from autofast.finding import Effect, Finding, Options, rule
from autofast.order import Rank
from autofast.read.names import DDP
from autofast.script import Loader, Script

from . import _accum, _accum_ddp, _accum_existing, _ddp_alike, _ddp_data, _ddp_host, _ddp_metrics, _ddp_model, _ddp_setup, _ddp_size, _pace
from ._ddp_loss import Loss
from ._ddp_model import Trained
from ._ddp_names import Ranks, Refused, Training, at
from ._ddp_setup import Flow, Happening
from ._twice import gone_through_twice

MESSAGE = "trains in one process on one device; torchrun can start one for each GPU, and each takes its part of every batch"
EXCHANGE = "the processes exchange gradients after every batch, and the last of a window is enough"
FRAMEWORKS = {
    "accelerate": "Accelerate distributes it: start it with `accelerate launch --num_processes N`",
    "lightning": 'Lightning distributes it: give the Trainer devices and strategy="ddp"',
    "fabric": 'Fabric distributes it: give Fabric devices and strategy="ddp"',
    "hf-trainer": "the Trainer of transformers distributes it: start it with torchrun as it is",
    "deepspeed": "DeepSpeed distributes it",
    "horovod": "Horovod distributes it",
}
STARTS = ("torch.distributed.init_process_group", "torch.distributed.launch", "horovod.torch.init", "deepspeed.init_distributed")


@rule("ddp", Effect.RECIPE, groups=("parallel",), default=False, option="--ddp")
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Train in several processes, one for each GPU, with DistributedDataParallel."""
    if not script.steps and not script.frameworks:
        return
    place = script.steps[0].loop if script.steps else next(iter(script.frameworks.values()))
    try:
        edits, note, wrapped = edits_for(script, options)
    except (Refused, _pace.Refused) as why:
        yield Finding(place, MESSAGE, refusal=str(why))
    else:
        yield Finding(place, MESSAGE + note, edits=tuple(edits), key=place)
        yield from quiet(script, options, wrapped, ("ddp", place))


def quiet(script: Script, options: Options, wrapped: dict[int, str], beside: tuple[str, object]) -> Iterator[Finding]:
    """Where the gradients of several batches are gathered, the processes exchange them once a window.

    ``wrapped`` are the names by which the calls of models call them now, ``beside`` the rule and the key of the finding that names them so.
    """
    for step in script.steps:
        calls = [s.node for s in step.forwards if isinstance(s.node, ast.Call) and id(s.node) in wrapped]
        if not calls:
            continue
        name = wrapped[id(calls[0])]
        planned = _accum.planned(script, options, step.loop)
        edits: list[Edit] = []
        needs: tuple[tuple[str, object], ...] = (beside,)
        try:
            if planned is not None and planned.window is not None and planned.turn is not None:
                condition = planned.window.is_last.replace("{", "{{").replace("}", "}}")
                backwards = [e.node for e in planned.turn.of("backward")]
                edits = _accum_ddp.no_sync(planned.turn.loop, backwards, condition, planned.edits, calls, name, always=False)
                needs = (beside, ("accumulation", step.loop))
            elif (test := _accum_ddp.last_of_window(script, step)) is not None:
                assert isinstance(step.loop, ast.For)
                backwards = [b.node for b in step.backwards]
                edits = _accum_ddp.no_sync(step.loop, backwards, "{test}", (), calls, name, always=False, holes={"test": test})
            elif _accum_existing.existing(script, step) is None:
                continue
        except _pace.Refused:
            pass
        if edits and all(wrapped[id(c)] == name for c in calls):
            yield Finding(calls[0], EXCHANGE, edits=tuple(edits), key=("no_sync", step.loop), needs=needs)
        else:
            yield Finding(calls[0], EXCHANGE, refusal=f"where {name}.no_sync() would go is not understood; it is slower so, not wrong")


def edits_for(
    script: Script, options: Options, parallel: Callable[[Ranks], list[Edit]] | None = None
) -> tuple[list[Edit], str, dict[int, str]]:
    """All that it takes, a remark, and what the calls that train call now, by their ids; raises :class:`Refused`.

    ``parallel`` makes the edits that hold DataParallel to one GPU.
    """
    _check_script(script)
    models = _ddp_model.trained(script)
    loaders = _ddp_data.loaders_of(script)
    for mine in models:
        _ddp_model.check(script, mine, parallel is not None)
    if (twice := gone_through_twice(script)) is not None:
        first, second, forward = twice
        lines = f"{at(first.node)} and {at(second.node)} both go back through the forward pass of {at(forward)}"
        raise Refused(
            f"{lines}, and DistributedDataParallel averages the gradients of one backward for each: call it on the sum of the losses"
        )
    for loader in loaders:
        _ddp_size.check(script, loader, _ddp_model.passes_of(script))
    losses = Loss(script)
    reductions = {id(b.node): losses.reduction(b) for step in script.steps for b in step.backwards}
    flow = _ddp_setup.flow_of(script, _happenings(script, models))
    _ddp_alike.check(script, flow, losses)
    ranks = Ranks(script)
    edits = _ddp_setup.group(script, ranks, flow)
    edits += _ddp_setup.devices(script, ranks)
    edits += parallel(ranks) if parallel is not None else []
    wrappers, wrapped = _ddp_model.edits(script, ranks, models, options, seeds=True)
    training = _training(script, models, loaders, flow, wrapped, reductions)
    edits += _ddp_host.edits(script, ranks, training)  # first: who downloads stands before the dataset
    edits += _ddp_metrics.edits(script, ranks, training)
    edits += wrappers
    for loader in loaders:
        edits += _ddp_data.share(script, ranks, loader)
        edits += _ddp_data.another_order(script, ranks, loader)
    edits += _sums(script, ranks, reductions)
    return [*edits, *ranks.edits], _note(models, options), wrapped


def _check_script(script: Script) -> None:
    if framework := next((f for f in FRAMEWORKS if f in script.frameworks), None):
        raise Refused(FRAMEWORKS[framework])
    for site in script.calls(*STARTS):
        raise Refused(f"it is distributed already, by {site.kind.rsplit('.', 1)[-1]}() on {at(site.node)}")
    if script.processes:
        raise Refused(f"it starts processes of its own ({at(script.processes[0].node)})")
    if any(w.name == DDP for m in script.models for w in m.wraps):
        raise Refused("it is distributed already")
    if script.entry.path.suffix == ".ipynb":
        raise Refused("a notebook runs in one process: export it as a script first")
    if script.unread:
        raise Refused(script.unread)
    if "apex" in script.frameworks:
        raise Refused("apex.amp scales the loss: let apex-amp put torch.amp in its place first, then run this again")
    for step in script.steps:
        for backward in step.backwards:
            if backward.framework:
                raise Refused(f"{at(backward.node)} leaves the backward to a framework")
        for update in step.updates:
            if update.closure:
                raise Refused(f"the optimizer on {at(update.node)} calls a closure as often as it likes, in each process otherwise")


def _happenings(script: Script, models: list[Trained]) -> list[Happening]:
    """The ways to all that belongs to the training."""
    found: list[Happening] = [(o.stack, b.node) for s in script.steps for b in s.backwards for o in b.site]
    found += [(o.stack, site.node) for e in script.evaluations for site in e.forwards for o in site]
    for thing in (
        *(m.thing for m in models),
        *(t for x in script.loaders for t in x.things),
        *(t for o in script.optimizers for t in o.things),
    ):
        if (made := _ddp_setup.made_at(thing)) is not None:
            found.append(made)
    return found


def _sums(script: Script, ranks: Ranks, reductions: dict[int, str]) -> list[Edit]:
    """Averaged gradients of a sum are too small by the number of processes."""
    backwards = {id(b.node): b for step in script.steps for b in step.backwards}
    wanted = [b for key, b in backwards.items() if reductions[key] == "sum"]
    return [Wrap(b.expr, f"{{}} * {ranks.world(b.node)}", rank=Rank.LOSS_DIVIDE) for b in wanted]


def _training(
    script: Script, models: list[Trained], loaders: list[Loader], flow: Flow, wrapped: dict[int, str], reductions: dict[int, str]
) -> Training:
    stacks = [(s, o.stack) for s in script.steps for b in s.backwards for o in b.site]
    outer: dict[int, ast.AST] = {id(e): e for s, stack in stacks if (e := _ddp_data.epochs_of(s, stack)) is not None}
    return Training(
        steps=script.steps,
        models=[m.model for m in models],
        loaders=loaders,
        optimizers=[t for o in script.optimizers for t in o.things],
        setup=flow.first,
        end=flow.last,
        flow=flow.scope,
        epochs=next(iter(outer.values()), None),
        wrapped=wrapped,
        reductions=reductions,
    )


def _note(models: list[Trained], options: Options) -> str:
    if any(n.startswith("BatchNorm") for m in models for n in m.model.layers) and not options.sync_batchnorm:
        return "; BatchNorm takes its statistics from each process's part (--sync-batchnorm: from all, on GPUs)"
    return ""
