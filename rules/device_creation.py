"""device-creation: make tensors on the device instead of copying them there in every step."""

from __future__ import annotations

from collections.abc import Iterator

from autofast.facts.cost import gains
from autofast.model.script import Script
from autofast.rule import Effect, Finding, Options, rule
from autofast.techniques.transfers.creations import against, from_numpy, loops_of_steps, moved

DEFAULTS = ("torch.set_default_device", "torch.set_default_tensor_type")
MESSAGE = "makes a tensor in host memory and copies it to the device"


@rule(
    "device-creation",
    Effect.EXACT,
    groups=("transfer",),
    relieves={"transfer": 3, "host": 6},
    asks=gains.in_steps,
)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Make tensors on the device instead of copying them there in every step."""
    if options.target == "cpu" or script.calls(*DEFAULTS):
        return
    hot = loops_of_steps(script)
    for creation in [*moved(script, hot), *from_numpy(script, hot)]:
        if why := against(script, creation, hot):
            yield Finding(creation.call, MESSAGE, refusal=why, effect=creation.effect)
        else:
            yield Finding(creation.call, MESSAGE, edits=creation.edits, effect=creation.effect)
