"""All that it takes to train in several processes."""

from __future__ import annotations

import ast
from collections.abc import Callable

from autofast.edit.edits import Edit, Wrap
from autofast.edit.order import Rank
from autofast.facts.retained_graphs import gone_through_twice
from autofast.model.names import DDP, last_part
from autofast.model.roles import Loader
from autofast.model.script import Script
from autofast.model.source import ByNode, at
from autofast.rule import Options, Refusal
from autofast.techniques.ddp import (
    agreement,
    batch_size,
    data,
    guards,
    metrics,
    model,
    setup,
    sharing,
    wrapping,
)
from autofast.techniques.ddp.loss import Loss
from autofast.techniques.ddp.model import Trained
from autofast.techniques.ddp.names import Ranks, Training
from autofast.techniques.ddp.setup import Extent, Happening
from autofast.techniques.ddp.uniformity.walk import followed

FRAMEWORKS = {
    "accelerate": "Accelerate distributes it: start it with `accelerate launch --num_processes N`",
    "lightning": 'Lightning distributes it: give the Trainer devices and strategy="ddp"',
    "fabric": 'Fabric distributes it: give Fabric devices and strategy="ddp"',
    "hf-trainer": "the Trainer of transformers distributes it: start it with torchrun as it is",
    "deepspeed": "DeepSpeed distributes it",
    "horovod": "Horovod distributes it",
}


STARTS = (
    "torch.distributed.init_process_group",
    "torch.distributed.launch",
    "horovod.torch.init",
    "deepspeed.init_distributed",
)


def edits_for(
    script: Script, options: Options, parallel: Callable[[Ranks], list[Edit]] | None = None
) -> tuple[list[Edit], str, ByNode[str]]:
    """All that it takes, a remark, and what the calls that train call now; raises
    :class:`Refusal`.

    ``parallel`` makes the edits that hold DataParallel to one GPU.
    """
    _check_script(script)
    models = model.trained(script)
    loaders = data.loaders_of(script)
    for mine in models:
        model.check(script, mine, parallel is not None)
    if (twice := gone_through_twice(script)) is not None:
        first, second, forward = twice
        lines = (
            f"{at(first)} and {at(second)} both go back through the forward pass of {at(forward)}"
        )
        raise Refusal(
            f"{lines}, and DistributedDataParallel averages the gradients of one backward for each: call it on the sum of the losses"
        )
    for loader in loaders:
        batch_size.check(script, loader, model.passes_of(script))
    losses = Loss(script)
    reductions: ByNode[str] = {
        b.node: losses.reduction(b) for step in script.steps for b in step.backwards
    }
    model.check_weights(models, losses.weights)
    extent = setup.extent_of(script, _happenings(script, models))
    agreement.check(script, extent)
    ranks = Ranks(script)
    edits = setup.group(script, ranks, extent)
    edits += setup.devices(script, ranks)
    edits += parallel(ranks) if parallel is not None else []
    wrappers, wrapped = wrapping.edits(script, ranks, models, options, seeds=True)
    training = _training(script, models, loaders, extent, wrapped)
    outside, walk = followed(script, training)
    edits += guards.edits(script, ranks, outside)  # first: who downloads stands before the dataset
    edits += metrics.edits(script, ranks, training, outside, walk)
    edits += wrappers
    for loader in loaders:
        edits += sharing.share(script, ranks, loader)
        edits += sharing.another_order(script, ranks, loader)
    edits += _sums(script, ranks, reductions)
    return [*edits, *ranks.edits], _note(models, options), wrapped


def _check_script(script: Script) -> None:
    if framework := script.framework(FRAMEWORKS):
        raise Refusal(FRAMEWORKS[framework])
    for site in script.calls(*STARTS):
        raise Refusal(f"it is distributed already, by {last_part(site.kind)}() on {at(site)}")
    if script.processes:
        raise Refusal(f"it starts processes of its own ({at(script.processes[0])})")
    if any(w.name == DDP for m in script.models for w in m.wraps):
        raise Refusal("it is distributed already")
    if script.entry.is_notebook:
        raise Refusal("a notebook runs in one process: export it as a script first")
    if script.unread:
        raise Refusal(script.unread)
    if "apex" in script.frameworks:
        raise Refusal("apex.amp scales the loss: put torch.amp in its place first")
    for step in script.steps:
        for backward in step.backwards:
            if backward.framework:
                raise Refusal("leaves the backward to a framework", backward)
        for update in step.updates:
            if update.closure:
                raise Refusal(
                    f"the optimizer on {at(update)} calls a closure as often as it likes, in each process otherwise"
                )


def _happenings(script: Script, models: list[Trained]) -> list[Happening]:
    """The ways to all that belongs to the training."""
    found: list[Happening] = [
        (o.stack, b.node) for s in script.steps for b in s.backwards for o in b.site
    ]
    found += [(o.stack, site.node) for e in script.evaluations for site in e.forwards for o in site]
    for thing in (
        *(m.thing for m in models),
        *(t for x in script.loaders for t in x.things),
        *(t for o in script.optimizers for t in o.things),
    ):
        if (made := setup.made_at(thing)) is not None:
            found.append(made)
    return found


def _sums(script: Script, ranks: Ranks, reductions: ByNode[str]) -> list[Edit]:
    """Averaged gradients of a sum are too small by the number of processes."""
    backwards = {b.node: b for step in script.steps for b in step.backwards}
    wanted = [b for key, b in backwards.items() if reductions[key] == "sum"]
    return [Wrap(b.expr, f"{{}} * {ranks.world(b.node)}", rank=Rank.LOSS_DIVIDE) for b in wanted]


def _training(
    script: Script,
    models: list[Trained],
    loaders: list[Loader],
    extent: Extent,
    wrapped: ByNode[str],
) -> Training:
    stacks = [(s, o.stack) for s in script.steps for b in s.backwards for o in b.site]
    outer: ByNode[ast.AST] = {
        e: e for s, stack in stacks if (e := sharing.epochs_of(s, stack)) is not None
    }
    return Training(
        steps=script.steps,
        models=[m.model for m in models],
        loaders=loaders,
        optimizers=[t for o in script.optimizers for t in o.things],
        setup=extent.first,
        end=extent.last,
        epochs=next(iter(outer.values()), None),
        wrapped=wrapped,
    )


def _note(models: list[Trained], options: Options) -> str:
    if (
        any(n.startswith("BatchNorm") for m in models for n in m.model.layers)
        and not options.sync_batchnorm
    ):
        return "; BatchNorm takes its statistics from each process's part (--sync-batchnorm: from all, on GPUs)"
    return ""
