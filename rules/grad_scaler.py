"""grad-scaler: scale the loss where gradients are fp16, so that small ones do not become zero."""

from __future__ import annotations

from collections.abc import Iterator

from autofast.model.script import Script
from autofast.model.source import source_of
from autofast.rule import Effect, Finding, Options, rule
from autofast.techniques.precision.amp import Amp, amp
from autofast.techniques.precision.blocks import KEY
from autofast.techniques.precision.scaling import EVER_SINCE, SINCE, Scaling, of_cuda_amp

MESSAGE = "with autocast in fp16 small gradients become zero: a GradScaler beside the optimizer scales the loss and unscales them"


@rule(
    "grad-scaler",
    Effect.ROUNDING,
    groups=("precision",),
    decides=Scaling,
    lowers_precision=True,
    uses=("autocast", "bce-with-logits"),
    torch=SINCE,
)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Scale the loss where autocast runs in fp16, so that small gradients do not become zero."""
    found = amp(script, options)
    if found.scaling is None:
        if found.blocks and found.no_scaler:
            yield Finding(
                script.steps[0].backwards[0].node,
                MESSAGE,
                refusal=f"{found.no_scaler}; autocast is written for bf16 only",
            )
        return
    edits = [e for made in found.makes.values() for e in made] + found.scaling.edits
    needs = tuple((Amp, key) for b in found.blocks if b.region.trains for key in b.keys)
    oldest = EVER_SINCE if of_cuda_amp(script) else SINCE
    files = {source_of(place): place for place in found.makes}
    for place in files.values():
        yield Finding(place, MESSAGE, edits=tuple(edits), key=KEY, needs=needs, torch=oldest)
    for call in found.scaling.backwards:
        if source_of(call) not in files:
            files[source_of(call)] = call  # type: ignore[assignment]
            yield Finding(call, MESSAGE, edits=tuple(edits), key=KEY, needs=needs, torch=oldest)
