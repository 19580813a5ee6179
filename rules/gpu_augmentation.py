"""gpu-augmentation: images in memory that are cropped and flipped at random lie on the device, and
whole batches are cropped and flipped there.
"""

from __future__ import annotations

from collections.abc import Iterator

from autofast.facts.cost import gains
from autofast.model.script import Script
from autofast.rule import Effect, Finding, Options, rule
from autofast.techniques.loading.resident import (
    Augmented,
    random_images,
    resident_edits,
    resident_plans,
)

MESSAGE = "images in memory are cropped and flipped one by one on the host, in every epoch again"


@rule(
    "gpu-augmentation",
    Effect.SAMPLING,
    default=False,  # until it has been measured on GPUs
    groups=("loader", "transfer"),
    decides=Augmented,
    uses=("gpu-data", "ddp", "dataparallel-to-ddp"),
    relieves={"data": 7, "transfer": 6},
    asks=gains.together(0.4, "no images to make one by one and no batches to copy", copied=True),
    torch=(1, 11),  # torch.cuda.mem_get_info
)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Keep images that are cropped and flipped on the device, and crop and flip whole batches
    there.
    """
    for loader, plan in resident_plans(script, options):
        if not random_images(loader):
            continue
        if isinstance(plan, str):
            yield Finding(loader.datasets[0].node or loader.node, MESSAGE, refusal=plan)
        elif plan.made is not None:
            yield Finding(plan.made.node, MESSAGE, edits=resident_edits(script, plan))
