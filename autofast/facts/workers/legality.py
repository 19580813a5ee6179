"""Why worker processes would change or break something, and where they are not worth their cost."""

from __future__ import annotations

import ast

from autofast.facts.cost import measured
from autofast.facts.cost.items import worth_a_worker
from autofast.facts.datasets import Images, image_sets
from autofast.facts.loaders import (
    is_iterated_again,
    lightning_hooks,
    made_elsewhere,
    made_in,
    peeking_use,
    split_after,
    values_given,
)
from autofast.facts.parts import held_by
from autofast.facts.workers.seeding import seeded_anew, seeded_by_workers
from autofast.facts.workers.shared_state import (
    changed_by_items,
    changed_meanwhile,
    draws_ahead,
    seeds_generators,
)
from autofast.model.events import inside, loops
from autofast.model.roles import Dataset, Loader, Use
from autofast.model.script import Script
from autofast.model.several import wordset
from autofast.model.source import at
from autofast.model.syntax import is_attribute
from autofast.model.tensors import tensors_in
from autofast.model.values import Const, Ext, Inst, Unknown, of_kind
from autofast.read.requirements import rules_out
from autofast.rule import Effect

REDUCTIONS = wordset("""mean sum std var norm matmul mm bmm softmax log_softmax logsumexp cumsum prod
    einsum fft rfft stft conv1d conv2d interpolate avg_pool2d""")


def _each_epoch(script: Script, loader: Loader) -> bool:
    """Made once in each pass of the loop over epochs, and iterated there: any loader has its
    workers started as often, unless they are kept.
    """
    around = made_in(loader)
    if len(around) != 1 or not loader.uses or any(use.is_next for use in loader.uses):
        return False
    epochs = next(iter(around))
    ways = script.backward_stacks
    return (
        any(inside(stack, epochs) for stack in ways)
        and all(step.loop is not epochs for step in script.steps)
        and all(_only_below(use, epochs) for use in loader.uses)
    )


def _only_below(use: Use, epochs: ast.AST) -> bool:
    """The loop over epochs is all that is around this use of a loader."""
    return [f.node for f in loops(use.stack) if f.node is not use.node] == [epochs]


def why_no_workers(script: Script, loader: Loader) -> str:
    """Why (more) workers would change or break something, whatever they cost; empty where nothing
    speaks against.
    """
    if script.processes:
        return f"the script starts processes of its own ({at(script.processes[0])}): share the cores between them by hand"
    anew = (
        loader.loop is not None
        and not lightning_hooks(script, loader)
        and not _each_epoch(script, loader)
    )
    if anew and not is_iterated_again(script, loader):
        return f"the loader is made again in the loop of {at(loader.loop)}: workers would be started every time"
    if (use := peeking_use(script, loader)) is not None:
        return f"{at(use)} starts all workers for one batch: keep one iterator instead"
    if (place := made_elsewhere(script, loader)) is not None:
        return f"{at(place)} puts new tensors on another device: workers would have to use it too"
    for name in ("batch_sampler", "sampler"):
        if why := _feedback(script, loader, name):
            return why
    if why := _shared_generator(script, loader):
        return why
    if why := next(
        (why for dataset in loader.datasets if (why := _of_dataset(dataset))), ""
    ) or _of_batch(loader):
        return why
    return (
        changed_by_items(script, loader)
        or changed_meanwhile(script, loader)
        or _own_seeds(script, loader)
        or _same_numbers(script, loader)
        or _other_split(script, loader)
    )


# Since then workers seed NumPy (torch/utils/data/_utils/worker.py).
SEEDS_NUMPY = (1, 9)
# Since then each pipeline of albumentations has a generator of its own, which none of torch's seeds
# reaches (albumentations/core/composition.py; issue 266 of albumentations-team/AlbumentationsX).
OWN_GENERATORS = (1, 4, 21)


def _same_numbers(script: Script, loader: Loader) -> str:
    """Generators that torch seeds in no worker: each would have a copy, and draw the same
    numbers.
    """
    drawn = loader.drawn
    if "numpy" in drawn and (place := script.torch.rules_out(SEEDS_NUMPY)):
        if "numpy" not in seeded_by_workers(loader):
            return (
                f"items draw from NumPy's generator, which torch seeds in workers only since 1.9 ({place}): each worker would get a "
                "copy and draw the same numbers, unless a worker_init_fn calls np.random.seed(torch.initial_seed() % 2**32)"
            )
    if "albumentations" in drawn and not rules_out(script, OWN_GENERATORS, "albumentations"):
        if "albumentations" not in seeded_by_workers(loader):
            return (
                "items go through albumentations, whose pipelines draw from generators of their own since 1.4.21: each worker "
                "would get a copy and draw the same numbers, unless a worker_init_fn calls their set_random_seed() with "
                "torch.initial_seed() % 2**32"
            )
    return ""


def _own_seeds(script: Script, loader: Loader) -> str:
    """Workers get all their seeds from torch's generator: what another one is seeded with while the
    script runs would not reach them.
    """
    anew = seeded_anew(script, loader)
    if anew is None or "torch" in anew[1]:
        return ""
    return f"{at(anew[0])} sets the seed of a generator that items draw from anew, and workers take theirs from torch's"


def _other_split(script: Script, loader: Loader) -> str:
    """Items of workers no longer draw from torch's generator of the main process, by which data are
    split later.
    """
    drawn = loader.drawn
    ways = [(use.node, use.stack) for use in loader.uses]
    split = split_after(script, ways) if drawn & {"torch", "transform"} else None
    return (
        f"{at(split)} draws what is trained on and what is not after items have drawn, which workers would do "
        "with other generators: give it a generator"
        if split is not None
        else ""
    )


def _of_dataset(dataset: Dataset) -> str:
    if dataset.kind == "unknown" or (dataset.unknown and dataset.kind != "library"):
        return f"the dataset is not known: {dataset.unknown}"
    if dataset.iterable and not dataset.sharded:
        return f"{dataset.name} does not share its data out by get_worker_info().num_workers: every worker would give all of the data"
    if dataset.on_device:
        return f"items of {dataset.name} are on the device ({dataset.on_device}): a worker would need the GPU"
    if "own" in dataset.random:
        return f"{dataset.name} has a random generator of its own: each worker would get a copy and draw the same numbers"
    if "unknown" in dataset.random:
        why = dataset.unknown or dataset.unclear
        return f"what an item of {dataset.name} draws is not known{': ' if why else ''}{why}"
    return ""


def _of_batch(loader: Loader) -> str:
    if "own" in loader.collate_random:
        return "its collate_fn has a random generator of its own: each worker would get a copy and draw the same numbers"
    return on_device(loader)


def on_device(loader: Loader) -> str:
    """Why batches are on the device where they are made; empty where they are not."""
    if loader.collate_on_device:
        return "its collate_fn puts batches on the device"
    if any(t.device == "dev" for t in tensors_in(loader.batch)):
        return "batches are on the device where they are made"
    return ""


def _feedback(script: Script, loader: Loader, name: str) -> str:
    """A sampler whose state the training changes: workers ask for indices ahead of time."""
    for thing in values_given(loader, name):
        if isinstance(thing, Unknown):
            return f"its {name} is not known: {thing.why}"
        if isinstance(thing, Inst):
            own = set(ast.walk(thing.cls.node))
            for site in script.log.of("set_attribute"):
                if site.node not in own and any(o.this is thing for o in site):
                    return f"{at(site)} changes the {name} from outside, and workers ask it for indices ahead of time"
        if (
            isinstance(thing, Ext)
            and thing.name.endswith("WeightedRandomSampler")
            and _written(script, thing)
        ):
            return f"the weights of its {name} are changed, and workers ask it for indices ahead of time"
    return ""


def _written(script: Script, thing: Ext) -> bool:
    return any(
        o.this is thing for site in script.log.of("set_attribute", "tensor_write") for o in site
    )


def _shared_generator(script: Script, loader: Loader) -> str:
    """A generator that something else draws from as well: workers change when the loader draws."""
    mine = {t for t in values_given(loader, "generator") if not isinstance(t, Const)}
    for other in script.loaders if mine else ():
        if other is not loader and mine & values_given(other, "generator"):
            return f"its generator is also that of the loader of {at(other)}"
    return ""


def why_cheap(script: Script, loader: Loader) -> str:
    """Why an item costs less than handing a batch over from another process; empty where it is
    worth a worker.
    """
    for dataset in loader.datasets:
        if isinstance(script.analysis(image_sets).get(dataset.node), Images) or makes_batches(
            dataset
        ):
            return f"{dataset.name} can make whole batches at once, which needs no worker: see batched-dataset"
        if dataset.kind in ("tensors", "list") or (
            dataset.in_memory and not dataset.reads & {"compute", "file", "decode"}
        ):
            return f"items of {dataset.name} are read out of memory, which is cheaper than to hand them over from a worker"
        why = ""
        if (
            not dataset.reads & {"file", "decode"}
            and dataset.kind == "project"
            and not _transforms(dataset)
        ):
            why = f"items of {dataset.name} are made in memory: whether a worker is worth its cost has to be measured"
        elif dataset.kind == "library" and not dataset.reads:
            why = f"what an item of {dataset.name} costs is not known"
        costly = measured.is_costly(script, loader) if why else None
        if costly is None and dataset.kind == "project" and worth_a_worker(script, loader):
            continue
        if why and not costly:
            return why if costly is None else measured.made(script, loader)
    return ""


def makes_batches(dataset: Dataset) -> bool:
    return isinstance(dataset.thing, Inst) and dataset.thing.cls.find("__getitems__") is not None


def _transforms(dataset: Dataset) -> bool:
    """Items go through transforms of torchvision or the like, which work on one image at a time."""
    parts = of_kind(held_by(dataset.thing), Ext)
    return any(
        t.name.startswith(("torchvision.transforms.", "albumentations.", "torchaudio.transforms."))
        for t in parts
    )


def rounding(dataset: Dataset) -> bool:
    """Items are sums over many numbers: a worker computes them with one thread, which may round
    differently.
    """
    if dataset.getitem is None:
        return False
    return any(is_attribute(n, *REDUCTIONS) for n in ast.walk(dataset.getitem))


def effect_of(script: Script, loader: Loader) -> Effect:
    """How far worker processes change what is trained: other draws, other rounding, nothing."""
    if (
        loader.collate_random
        or draws_ahead(script, loader)
        or seeds_generators(script, loader)
        or any(dataset.random for dataset in loader.datasets)
    ):
        return Effect.SAMPLING
    return (
        Effect.ROUNDING if any(rounding(dataset) for dataset in loader.datasets) else Effect.EXACT
    )
