"""autocast: run forward passes and losses in 16 bits where that is safe."""

from __future__ import annotations

from collections.abc import Iterator

from autofast.facts.cost import gains
from autofast.facts.precision.switched_off import switched_off
from autofast.model.script import Script
from autofast.rule import Effect, Finding, Options, rule
from autofast.techniques.precision.amp import Amp, amp
from autofast.techniques.precision.blocks import KEY
from autofast.techniques.precision.scaling import Scaling
from autofast.techniques.precision.with_logits import WithLogits

TRAINS = "the forward pass runs in fp32: autocast runs its matrix products and convolutions in 16 bits, on tensor cores"
MEASURES = "the evaluation's forward pass runs in fp32: autocast runs it as training does, in 16 bits on tensor cores"
BESIDE = "this forward pass belongs to a block that autocast goes around"


@rule(
    "autocast",
    Effect.ROUNDING,
    groups=("precision",),
    decides=Amp,
    lowers_precision=True,
    relieves={"evaluation": 4, "device": 1, "cpu": 1},
    uses=("grad-scaler", "bce-with-logits"),
    torch=(1, 10),
    asks=gains.half,
)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Run forward passes and losses in 16 bits, under autocast."""
    found = amp(script, options)
    for node, why in found.refused:
        yield Finding(node, TRAINS, refusal=why)
    if (off := switched_off(script)) is not None:
        place, where = off
        yield Finding(place, TRAINS, advice=f"it is there, and off by default: turn on {where}")
        if not found.blocks:
            return
    scaler = ((Scaling, KEY),) if found.scaling is not None else ()
    losses = tuple((WithLogits, key) for key in found.logits.keys) if found.logits else ()
    training = tuple(
        (None, key) for block in found.blocks if block.region.trains for key in block.keys
    )
    for block in found.blocks:
        together = (*scaler, *losses, *training, *((None, key) for key in block.keys))
        for n, call in enumerate(block.region.forwards):
            message = BESIDE if n else TRAINS if block.region.trains else MEASURES
            if message == TRAINS and found.remark:
                message += f" ({found.remark})"
            yield Finding(
                call,
                message,
                edits=block.edits,
                key=block.keys[n],
                needs=together,
                torch=found.torch,
            )
