"""The momentum of fused SGD: where its buffers come into being at the wrong time.

SGD makes a buffer at a parameter's first gradient. The fused kernel (torch 2.13) makes all of them
in its first step, and does not set
them where a GradScaler skips that step: they hold what was in memory, and the next step takes them
for momentum. Whether a scaler is enabled only on some machines (fp16 where there is no bf16) makes
no difference there. And it takes all of them or none, so that a parameter which gets its first
gradient later is an error. What a plain ``fused=True`` cannot do stays as it is.
"""

from __future__ import annotations

from autofast.facts.gradients import comes_late
from autofast.facts.optimizers import has_momentum
from autofast.model.events import Occurrence
from autofast.model.kinds import is_scaler
from autofast.model.script import Optimizer, Script
from autofast.model.source import at
from autofast.model.values import const, consts

FRAMEWORKS = ("accelerate", "lightning", "fabric", "hf-trainer", "apex")
ASKED = {"lightning": (4, "precision"), "accelerate": (-1, "mixed_precision")}  # of whom
WITHOUT_SCALER = frozenset(
    [32, 64, "32", "64", "32-true", "64-true", "16-true", "no"]
    + ["bf16", "bf16-mixed", "bf16-true"]
)
SPOILT = "in steps that a GradScaler skips, fused SGD spoils its momentum"


def against_momentum(script: Script, optimizer: Optimizer, *, scaled: bool) -> str:
    """Why fused SGD could not start its momentum; empty where it can. ``scaled``: mixed precision
    may bring a GradScaler.
    """
    if not has_momentum(script, optimizer):
        return ""
    return _skipped(script, scaled) or _late(script, optimizer)


def _is_off(made: Occurrence) -> bool:
    """A scaler that is made to do nothing, such as the default of a parameter."""
    return made.args is not None and const(made.args.get(-1, "enabled")) is False


def _skipped(script: Script, scaled: bool) -> str:
    """A GradScaler that may skip the first step, in words."""
    for site in script.log.of("new"):
        if any(o.this is not None and is_scaler(o.this) and not _is_off(o) for o in site):
            return f"in steps that the GradScaler of {at(site.node)} skips, fused SGD spoils its momentum"
    for framework in (f for f in script.frameworks if f in FRAMEWORKS):
        if _never_scales(script, framework):
            continue
        return f"{framework} may scale the loss, and {SPOILT}"
    if scaled:
        return f"mixed precision needs a GradScaler on GPUs without bf16, and {SPOILT}: with --precision bf16 there is none"
    return ""


def _never_scales(script: Script, framework: str) -> bool:
    """All its objects are told a precision that needs no scaler. Lightning's default is one; of
    Accelerate, the launcher's is taken.
    """
    objects = [t for t in script.trainers if t.framework == framework]
    if framework not in ASKED or not objects:
        return False
    for trainer in objects:
        given = trainer.args.given(*ASKED[framework])
        asked = consts(given.values) if given is not None else {32}
        if trainer.args.open or "plugins" in trainer.args.named or asked is None:
            return False
        if not asked <= WITHOUT_SCALER or (given is None and framework == "accelerate"):
            return False
    return True


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
