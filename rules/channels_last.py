"""channels-last: keep images and the weights of convolutions in the order of memory that fast
convolutions want.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from autofast.facts.cost import gains
from autofast.flow.positions import position
from autofast.model.roles import Model
from autofast.model.script import Script
from autofast.model.several import grouped
from autofast.model.source import source_of
from autofast.rule import Effect, Finding, Options, rule
from autofast.techniques.layout.conversions import (
    averaged_networks,
    conversions,
    fed_by,
    image_transfers,
    is_there,
    networks_beside,
    part_of,
    place_of,
    scattered_makers,
    trained_networks,
    whole_of,
)
from autofast.write.spelling import uses_gpu

# Before it, SyncBatchNorm was slower in this order, and in torch 1.9 its backward read gradients
# wrongly that came in another one (pytorch#50549, #64100).
SYNCHRONISED = (1, 10)
SYNC = "torch.nn.SyncBatchNorm"


@rule(
    "channels-last",
    Effect.ROUNDING,
    groups=("layout",),
    relieves={"device": 3, "cpu": 2},
    asks=gains.layout,
    torch=(1, 5),
)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Keep images and convolution weights in channels_last order."""
    if is_there(script) or (options.target == "cuda" and not uses_gpu(script)):
        return
    accepted: list[tuple[Model, object]] = []  # with the key of the finding that converts it
    effect: Effect | None = None
    made = (
        (place_of(script, model), model)
        for model in (*trained_networks(script), *networks_beside(script))
    )
    places = grouped((place, model) for place, model in made if place is not None)
    found: list[tuple[Finding, list[Model]]] = []
    for place, models in places.items():
        models += averaged_networks(script, place, models)
        found += conversions(script, place, models)
    stays = [m for finding, models in found if finding.refusal for m in models]
    groups = [models for finding, models in found if finding.edits]
    converted = [m for models in groups for m in models]
    for finding, models in found:
        why = part_of(models, stays) or fed_by(models, stays) or scattered_makers(models, groups)
        if finding.edits and why:
            finding = Finding(finding.node, finding.message, refusal=why)
        if finding.edits and all(whole_of(m, converted) for m in models):
            continue
        key = source_of(finding.node).rel, position(finding.node)
        since = SYNCHRONISED if _is_synchronised(script) else None
        yield replace(finding, key=key, torch=since or finding.torch)
        if finding.edits:
            accepted += [(model, key) for model in models]
            # The layout of the images alone changes what dropout draws, too.
            effect = effect or finding.effect
    yield from image_transfers(script, accepted, effect)


def _is_synchronised(script: Script) -> bool:
    """Whether a network has SyncBatchNorm, or gets it."""
    return bool(script.calls(SYNC, f"{SYNC}.convert_sync_batchnorm"))
