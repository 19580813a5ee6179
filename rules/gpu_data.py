"""gpu-data: data that lie in memory are put on the device once, and batches are indexed there."""

from __future__ import annotations

from collections.abc import Iterator

from autofast.edit.edits import Remove
from autofast.facts.cost import gains
from autofast.model.script import Script
from autofast.rule import Effect, Finding, Options, rule
from autofast.techniques.loading.resident import (
    Augmented,
    Kept,
    random_images,
    resident_edits,
    resident_plans,
    spread_for_nobody,
)

MESSAGE = (
    "batches of data in memory are made item by item and copied to the device, in every epoch again"
)

SPREAD = "no loader needs these arguments of workers any more"


@rule(
    "gpu-data",
    Effect.EXACT,
    groups=("loader", "transfer"),
    decides=Kept,
    uses=("gpu-augmentation", "ddp", "dataparallel-to-ddp"),
    relieves={"data": 6, "transfer": 5},
    asks=gains.together(0.4, "no items to fetch and no batches to copy", copied=True),
    torch=(1, 11),  # default_collate and torch.cuda.mem_get_info
)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Keep data that lie in memory on the device, and take whole batches there."""
    gone = []
    for loader, plan in resident_plans(script, options):
        if random_images(loader) and options.decides(Augmented):
            continue
        node = loader.node
        if isinstance(plan, str):
            yield Finding(node, MESSAGE, refusal=plan)
            continue
        needs = ((Augmented, None),) if plan.made is not None else ()
        made = resident_edits(script, plan)
        yield Finding(node, MESSAGE, edits=made, effect=plan.effect, needs=needs, key=node)
        gone.append(loader)
    for statement, loaders in spread_for_nobody(script, gone).items():
        only = tuple((None, x.node) for x in loaders)
        yield Finding(statement, SPREAD, edits=(Remove(statement),), needs=only)
