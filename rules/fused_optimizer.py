"""fused-optimizer: update all parameters in a few kernels instead of one per operation."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from autofast.facts.cost import gains
from autofast.facts.optimizers import SINCE, unreached_optimizers
from autofast.model.names import OPTIMIZERS
from autofast.model.script import Script
from autofast.model.source import statement_of
from autofast.model.values import Ext, is_named
from autofast.rule import Effect, Finding, Options, rule
from autofast.techniques.optimizer.fused import (
    against_momentum,
    fused_edits,
    fused_home,
    is_decided,
    is_exact,
    named_in_settings,
    why_not_fused,
)
from autofast.techniques.precision.amp import amp
from autofast.techniques.precision.scaling import Scaling, apex_option
from autofast.write.arguments import Home
from autofast.write.spelling import uses_gpu

ADAGRAD_CUDA = (2, 8)
SMALL = "runs the update of {} as many small kernels"


@rule(
    "fused-optimizer",
    Effect.ROUNDING,
    groups=("optimizer",),
    relieves={"optimizer": 1, "host": 2, "device": 5, "cpu": 3},
    torch=SINCE,
    asks=gains.launches,
)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Update all parameters in a few kernels instead of one per operation."""
    if not (script.steps or script.frameworks):
        return
    yield from named_in_settings(script)
    able = [o for o in script.optimizers if is_exact(o) and not is_decided(o.args)]
    if options.target == "cuda" and not uses_gpu(script):
        for optimizer in able[:1]:
            why = "nothing in this script goes to a GPU"
            yield Finding(optimizer.node, SMALL.format(optimizer.name), refusal=why)
        return
    calls = [o.node for o in able]
    scaled = bool(script.optimizers) and _may_be_scaled(script, options)
    for call, name, test in unreached_optimizers(script, may_scale=scaled):
        todo = (
            f"as the script stands, `{ast.unparse(test)}` leads past it: pass fused=True here, too"
        )
        yield Finding(call, SMALL.format(name), advice=todo)
    for optimizer in script.optimizers:
        if all(is_named(t, Ext, OPTIMIZERS) for t in optimizer.things):
            todo = "torch.optim.AdamW(..., fused=True) does the same in a few kernels; its defaults of eps and weight_decay are others"
            if optimizer.name == "AdamW":
                yield Finding(optimizer.node, SMALL.format(optimizer.name), advice=todo)
    for optimizer in able:
        message = SMALL.format(optimizer.name)
        place = fused_home(script, optimizer, calls)
        unless = ""
        if "apex" in script.frameworks and isinstance(place, Home):
            unless = _without_apex(script, place)
        if why := why_not_fused(script, optimizer, without_apex=bool(unless)):
            yield Finding(optimizer.node, message, refusal=why)
        elif (
            optimizer.name == "Adagrad"
            and options.target == "cuda"
            and not script.torch.is_at_least(ADAGRAD_CUDA)
        ):
            yield Finding(
                optimizer.node,
                message,
                advice="pass fused=True where torch is 2.8 or newer: older ones have it for the CPU only",
            )
        elif why := against_momentum(script, optimizer, scaled=scaled):
            yield Finding(optimizer.node, message, refusal=why)
        elif isinstance(place, str):
            yield Finding(optimizer.node, message, refusal=place)
        else:
            yield Finding(
                optimizer.node,
                message,
                edits=tuple(fused_edits(script, place, optimizer, options.target, unless)),
            )


def _may_be_scaled(script: Script, options: Options) -> bool:
    """Whether mixed precision, by this rewrite or a later one, brings a GradScaler that is enabled
    on some GPUs.
    """
    both = replace(options, decisions=options.decisions | {Scaling})
    return options.target == "cuda" and amp(script, both).scaling is not None


def _without_apex(script: Script, home: Home) -> str:
    """An expression that is true where an option keeps apex away, which is off by default; empty
    where none can be asked.
    """
    off = apex_option(script)
    return off.is_off_at(script, statement_of(home.node)) if off is not None else ""
