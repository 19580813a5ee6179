"""tf32: let fp32 matrix products use the tensor cores of the GPU."""

from __future__ import annotations

from collections.abc import Iterator

from autofast.edit.edits import Before
from autofast.facts.precision.fp32 import decided, needs_digits
from autofast.model.script import Script
from autofast.model.source import source_of
from autofast.rule import Effect, Finding, Options, rule
from autofast.write.placement import setup_place, trainer_place
from autofast.write.spelling import (
    chooses_devices_late,
    cuda_test,
    requires_cuda,
    torch_in,
    uses_gpu,
)


@rule(
    "tf32",
    Effect.ROUNDING,
    groups=("backend", "precision"),
    lowers_precision=True,
    relieves={"device": 2},
)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Let fp32 matrix products use the tensor cores of the GPU."""
    if options.target == "cpu" or not uses_gpu(script) or decided(script):
        return
    place = setup_place(script) if script.steps else trainer_place(script)
    if place is None:
        return
    message = "matrix products in fp32 leave the GPU's tensor cores unused"
    if why := against(script):
        yield Finding(place, message, refusal=why)
        return
    torch, imports = torch_in(source_of(place))
    setting = f'{torch}.set_float32_matmul_precision("high")'
    if requires_cuda(script):
        yield Finding(place, message, edits=(*imports, Before(place, setting)))
        return
    if line := chooses_devices_late(script, place):
        yield Finding(
            place,
            message,
            refusal=f"CUDA_VISIBLE_DEVICES is set on line {line}, perhaps after CUDA would have been asked for",
        )
        return
    # on the CPU "high" may make oneDNN round too, and gain nothing: hence the condition
    test, more = cuda_test(script, place)
    yield Finding(
        place, message, edits=(*imports, *more, Before(place, f"if {test}:\n    {setting}"))
    )


def against(script: Script) -> str:
    """Why this script wants all 23 bits of the mantissa; empty where nothing says so."""
    if "hf-trainer" in script.frameworks:
        return "the Trainer sets this: see trainer-args"
    return needs_digits(script)
