"""cuda-prefetch: the next batch is copied to the device on a stream of its own while the step
computes.
"""

from __future__ import annotations

from collections.abc import Iterator

from autofast.model.script import Script
from autofast.rule import Effect, Finding, Options, Refusal, rule
from autofast.techniques.loading.pinned import Pinned, pinning_place
from autofast.techniques.loading.resident import remaining_loaders
from autofast.techniques.transfers.prefetched import planned_pass, prefetch_edits, training_passes

MESSAGE = "copies each batch between two steps: the GPU computes nothing meanwhile"
PAGEABLE = (
    "its batches are not pinned: a copy out of pageable memory holds up the host on any stream"
)


@rule(
    "cuda-prefetch",
    Effect.EXACT,
    groups=("transfer",),
    default=False,
    relieves={"transfer": 8},
    uses=("pin-memory", "gpu-data", "gpu-augmentation", "ddp", "dataparallel-to-ddp"),
    torch=(1, 5),
)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Copy the next batch to the device while the step computes, on a stream of its own."""
    if options.target == "cpu":
        return
    remaining = remaining_loaders(script, options)
    for loader, loop in training_passes(script):
        inside = [t for t in loader.moved if any(f.node is loop for f in t.loops)]
        if not inside or loader not in remaining:
            continue  # its batches come from the device
        pinned = pinning_place(script, options, loader.things)
        if pinned is False:
            yield Finding(loop, MESSAGE, refusal=PAGEABLE)
            continue
        try:
            made = prefetch_edits(planned_pass(script, loader, loop))
        except Refusal as why:
            yield Finding(loop, MESSAGE, refusal=str(why))
            continue
        needs = () if pinned is True else ((Pinned, pinned),)
        yield Finding(loop, MESSAGE, edits=made, needs=needs)
