"""uint8-transfer: images cross to the device as the bytes that they are read as, and become floats
there.
"""

from __future__ import annotations

from collections.abc import Iterator

from autofast.facts.cost import gains
from autofast.model.script import Script
from autofast.rule import Effect, Finding, Options, Refusal, rule
from autofast.techniques.loading.resident import remaining_loaders
from autofast.techniques.transfers.byte_arrays import byte_arrays
from autofast.techniques.transfers.byte_batches import copies_of
from autofast.techniques.transfers.byte_edits import on_device
from autofast.techniques.transfers.byte_transforms import SINCE, pictures_of
from autofast.techniques.transfers.factories import loops_of_steps

BY_HAND = "makes floats of an array on the host, and copies four times as many bytes, if these are bytes, as what is divided by 255 is"
MESSAGE = "images are read as bytes, made into floats one by one on the host, and copied as four times as many bytes"


@rule(
    "uint8-transfer",
    Effect.ROUNDING,
    groups=("transfer", "loader"),
    relieves={"transfer": 7, "data": 8},
    asks=gains.usual(0.05, "a quarter of the bytes to collate and to copy"),
    uses=("gpu-data", "gpu-augmentation", "ddp", "dataparallel-to-ddp"),
)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Copy images to the device as bytes, and make them floats there."""
    if options.target == "cpu":
        return
    for node, edits in byte_arrays(script, loops_of_steps(script)):
        yield Finding(node, BY_HAND, edits=edits, effect=Effect.EXACT)
    loaders = [x for x in remaining_loaders(script, options) if x.moved]
    turn = 0  # of those whose constants have names
    for found in pictures_of(script, loaders):
        try:
            if found.why:
                raise Refusal(found.why)
            copies = copies_of(script, found.items)
            transforms = [e.composed.node for e in found.endings if e.composed.node is not None]
            made = on_device(script, copies, found.template, found.constants, turn, transforms)
            edits = (*found.edits(script), *made)
        except Refusal as why:
            yield Finding(found.node, MESSAGE, refusal=str(why))
            continue
        turn += found.constants is not None
        if copies:
            yield Finding(found.node, MESSAGE, edits=edits, torch=SINCE)
