"""batched-dataset: take whole batches out of memory at once instead of making and collating them
item by item.
"""

from __future__ import annotations

from collections.abc import Iterator

from autofast.facts.cost import gains
from autofast.facts.datasets import Images, image_sets, why_not_rows
from autofast.facts.loaders import is_used
from autofast.facts.several_processes import several_processes
from autofast.model.script import Script
from autofast.rule import Effect, Finding, Options, rule
from autofast.techniques.loading.batched import (
    as_dataset,
    is_batched,
    only_collects,
    sampler_of_batches,
    why_another,
    why_not_batched,
)
from autofast.techniques.loading.numbers import no_longer_imported, split_numbers
from autofast.techniques.loading.resident import (
    Kept,
    made_resident,
    remaining_loaders,
    resident_edits,
)
from autofast.techniques.loading.windows import cuts

ITEMS = "batches are put together item by item, though all items lie in memory"
OBJECTS = (
    "each image is made into a PIL object and a tensor by itself, though all lie in memory as bytes"
)
NUMBERS = "batches of indices are collated number by number"
WINDOWS = "the windows of a batch are cut out of the data one by one and put together again"
BY_HAND = "with rows of tensors as items, or with a __getitems__, batches could be taken at once"


@rule(
    "batched-dataset",
    Effect.EXACT,
    groups=("loader",),
    relieves={"data": 2, "evaluation": 3},
    asks=gains.together(0.3, "waits for data, item by item"),
    uses=("gpu-data", "gpu-augmentation", "ddp", "dataparallel-to-ddp"),
    torch=(1, 2),
)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Take whole batches out of memory at once instead of making and collating them item by
    item.
    """
    loaders = remaining_loaders(script, options)
    gone = []
    for loader in loaders:
        if not is_used(script, loader):
            continue
        if split := () if several_processes(options) else split_numbers(script, loader):
            node = loader.node
            yield Finding(node, NUMBERS, edits=split, effect=Effect.SAMPLING, key=node)
            gone.append(node)
            continue
        if not is_batched(loader) and (why := why_another(loader)):
            yield Finding(loader.node, ITEMS, refusal=why)
        if not only_collects(loader) or is_batched(loader):
            continue
        if why := next(
            (f"{d.name}: {why}" for d in loader.datasets if (why := why_not_rows(d))), ""
        ):
            yield Finding(loader.node, ITEMS, advice=f"{why}; {BY_HAND}")
        elif why := why_not_batched(script, loader):
            yield Finding(loader.node, ITEMS, refusal=why)
        elif isinstance(made := sampler_of_batches(script, loader), str):
            yield Finding(loader.node, ITEMS, refusal=made)
        else:
            yield Finding(loader.node, ITEMS, edits=made)
    yield from no_longer_imported(script, gone)
    kept = {x: resident_edits(script, plan) for x, plan in made_resident(script, options)}
    for image_set in script.analysis(image_sets).values():
        if not isinstance(image_set, Images):
            continue
        if all(x in loaders for x in image_set.loaders):
            yield Finding(image_set.call, OBJECTS, edits=as_dataset(image_set))
        elif mine := [x for x in image_set.loaders if x in kept]:
            made = tuple(e for x in mine for e in kept[x])
            needs = tuple((Kept, x.node) for x in mine)
            yield Finding(image_set.call, OBJECTS, edits=made, needs=needs)
    for cut in cuts(script):
        yield Finding(cut.call, WINDOWS, edits=cut.edits, refusal=cut.refusal, torch=(1, 0))
