"""The momentum of fused SGD: where its buffers come into being at the wrong time.

SGD makes a buffer at a parameter's first gradient. The fused kernel (torch 2.13) makes all of them in its first step, and does not set
them where a GradScaler skips that step; and it takes all of them or none, so that a parameter which gets its first gradient later is an
error. What a plain ``fused=True`` cannot do stays as it is.
"""

from __future__ import annotations

from autofast.facts.gradients import comes_late
from autofast.facts.optimizers import has_momentum
from autofast.model.events import Occurrence
from autofast.model.kinds import is_scaler
from autofast.model.script import Optimizer, Script
from autofast.model.source import line_of
from autofast.model.values import const
from autofast.rule import Options

FRAMEWORKS = ("accelerate", "lightning", "fabric", "hf-trainer", "apex")
SPOILT = "in steps that a GradScaler skips, fused SGD spoils its momentum"


def against_momentum(
    script: Script, optimizer: Optimizer, options: Options, *, scaled: bool
) -> str:
    """Why fused SGD could not start its momentum; empty where it can. ``scaled``: mixed precision may bring a GradScaler."""
    if not has_momentum(script, optimizer):
        return ""
    return _skipped(script, options, scaled) or _late(script, optimizer)


def _is_off(made: Occurrence) -> bool:
    """A scaler that is made to do nothing, such as the default of a parameter."""
    return made.args is not None and const(made.args.get(-1, "enabled")) is False


def _skipped(script: Script, options: Options, scaled: bool) -> str:
    """A GradScaler that may skip the first step, in words."""
    for site in script.log.of("new"):
        if any(o.this is not None and is_scaler(o.this) and not _is_off(o) for o in site):
            return f"in steps that the GradScaler of line {line_of(site.node)} skips, fused SGD spoils its momentum"
    if framework := next((f for f in script.frameworks if f in FRAMEWORKS), ""):
        return f"{framework} may scale the loss, and {SPOILT}"
    if scaled:
        return f"mixed precision needs a GradScaler on GPUs without bf16, and {SPOILT}: with --precision bf16 there is none"
    if options.target == "cuda" and script.calls("torch.nn.DataParallel"):
        return f"under DataParallel autocast computes in fp16, with a GradScaler, and {SPOILT}"
    return ""


def _late(script: Script, optimizer: Optimizer) -> str:
    """A parameter that may get its first gradient later than others, in words."""
    models = optimizer.params or [
        m
        for step in script.steps
        if any(u in step.updates for u in optimizer.updates)
        for m in step.models
    ]
    why = comes_late(script, models)
    return f"{why}: fused SGD with momentum is an error then" if why else ""
