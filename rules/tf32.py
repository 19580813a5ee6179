"""tf32: let fp32 matrix products use the tensor cores of the GPU."""

from __future__ import annotations

from collections.abc import Iterator

from autofast.facts.cost import gains
from autofast.facts.precision.fp32 import is_precision_set, needs_digits
from autofast.facts.sent_by_value import against_backends
from autofast.model.script import Script
from autofast.model.several import surely
from autofast.model.source import source_of
from autofast.model.values import const
from autofast.rule import Effect, Finding, Options, rule
from autofast.techniques.precision.amp import Amp, amp
from autofast.write.placement import setup_place, trainer_place
from autofast.write.spelling import torch_in, uses_gpu

SINCE, OLD = (1, 12), (1, 7)  # torch.set_float32_matmul_precision; torch.backends.cuda.matmul
UNDER_AUTOCAST = gains.nothing("autocast runs the products in 16 bits")
BY_DEFAULT = gains.nothing("a torch before 1.12 multiplies in TF32 by default")


@rule(
    "tf32",
    Effect.ROUNDING,
    groups=("backend", "precision"),
    lowers_precision=True,
    relieves={"device": 2},
    uses=("autocast", "grad-scaler"),
    asks=gains.tensor_cores,
    torch=OLD,
)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Let fp32 matrix products use the tensor cores of the GPU."""
    if options.target == "cpu" or not uses_gpu(script) or is_precision_set(script):
        return
    spot = setup_place(script) if script.steps else trainer_place(script)
    if spot is None:
        return
    place = spot.node
    message = "matrix products in fp32 leave the GPU's tensor cores unused"
    if why := against(script):
        yield Finding(place, message, refusal=why)
        return
    torch, imports = torch_in(source_of(place))
    old = bool(script.torch.rules_out(SINCE))
    if old and (why := against_backends(script, place)):
        yield Finding(place, message, refusal=why)
        return
    setting = f'{torch}.set_float32_matmul_precision("high")'
    if old:
        setting = f"{torch}.backends.cuda.matmul.allow_tf32 = True"
    asks = UNDER_AUTOCAST if _runs_in_half(script, options) else None
    if old and (script.torch.given or any(n.limit.is_below(SINCE) for n in script.torch.newest)):
        asks = BY_DEFAULT
    edits = (*imports, spot.written(setting))
    yield Finding(place, message, edits=edits, asks=asks, torch=OLD if old else SINCE)


def _runs_in_half(script: Script, options: Options) -> bool:
    """Whether every training step runs under autocast, by this rewrite, already, or by what a
    Trainer is given by default: there are no fp32 products left.
    """
    given = [t for x in script.trainers for t in x.args.get(4, "precision")]
    if any("16" in str(const(getattr(t, "default", frozenset({t})))) for t in given):
        return True
    steps = [step for step in script.steps if step.forwards or step.updates]
    if surely(step.autocast for step in steps):
        return True
    if not options.decides(Amp):
        return False
    found = amp(script, options)
    return bool(found.blocks) and not found.refused


def against(script: Script) -> str:
    """Why this script wants all 23 bits of the mantissa; empty where nothing says so."""
    if "hf-trainer" in script.frameworks:
        return "the Trainer sets this: see trainer-args"
    return needs_digits(script)
